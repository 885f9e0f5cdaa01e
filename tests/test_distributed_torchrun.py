"""torchrun on the device: the number of devices as the number of ranks, and a restart after a rank has died."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

TRAIN = """
import os, sys, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

device = torch.device("openreg", int(os.environ["LOCAL_RANK"]) % torch.accelerator.device_count())
dist.init_process_group(device_id=device)
rank = dist.get_rank()
torch.accelerator.set_device_index(device.index)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    model(torch.full((2, 4), float(rank), device=device)).sum().backward()
    optimizer.step()
    if step == 1 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] < os.environ.get("DIES_UNTIL", "0"):
        os._exit(1)
total = torch.tensor(float(rank), device=device)
dist.all_reduce(total)
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
print(f"rank {rank} of {dist.get_world_size()} attempt {attempt} total {total.item()}", flush=True)
dist.destroy_process_group()
"""


def torchrun(folder: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    program = folder / "train.py"
    program.write_text(textwrap.dedent(TRAIN))
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, program],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_torchrun_starts_a_rank_for_each_device(tmp_path: Path) -> None:
    result = torchrun(tmp_path, "--standalone", "--nproc-per-node", "openreg", OPENREG_DEVICE_COUNT="2")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 2 attempt 0 total 1.0" for rank in range(2)]


def test_torchrun_starts_again_when_a_rank_dies(tmp_path: Path) -> None:
    options = ("--standalone", "--nproc-per-node", "3", "--max-restarts", "2")
    result = torchrun(tmp_path, *options, DIES_UNTIL="2")
    assert result.returncode == 0, result.stderr
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 3 attempt 2 total 3.0" for rank in range(3)]
