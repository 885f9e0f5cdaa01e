"""torchrun on the device: a rank for each device, a restart after a rank has died, and two hosts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import programs
import pytest
from programs import at_once

pytestmark = pytest.mark.slow

START = """
import os, torch, torch.distributed as dist

device = torch.device("openreg", int(os.environ["LOCAL_RANK"]))
torch.accelerator.set_device_index(device.index)
dist.init_process_group(device_id=device)
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
total = torch.tensor(float(rank), device=device)
dist.all_reduce(total)
"""
END = """
line = f"rank {rank} of {dist.get_world_size()} attempt {attempt} total {total.item()}\\n"
print(line, end="", flush=True)  # one write, because the ranks share one pipe
dist.destroy_process_group()
"""
DIES = """
if rank == 1 and attempt == "0":
    os._exit(1)
dist.all_reduce(total)
"""
TRAINS = """
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4).to(device))
model(torch.full((2, 4), float(rank), device=device)).sum().backward()
assert torch.equal(model.module.weight.grad.cpu(), torch.full((4, 4), 3.0))  # the mean of 2 * rank
"""
# A host sends the bytes of the sum about once. A ring of all four ranks would send them 1.5 times.
SUMS = """
counter = f"/sys/class/net/{os.environ['GLOO_SOCKET_IFNAME']}/statistics/tx_bytes"
x = torch.ones(1 << 20, device="openreg")
dist.all_reduce(x)
dist.barrier()
before = int(open(counter).read())
for _ in range(5):
    dist.all_reduce(x)
dist.barrier()
sent = (int(open(counter).read()) - before) / (5 * x.nbytes)
assert torch.equal(x.cpu(), torch.full((1 << 20,), 4.0**6)), x
assert 0.9 < sent < 1.25, sent
"""


def test_torchrun_starts_a_rank_for_each_device_and_again_when_a_rank_dies(tmp_path: Path) -> None:
    program = tmp_path / "dies.py"
    program.write_text(START + DIES + END)
    options = ("--standalone", "--nproc-per-node", "openreg", "--max-restarts", "1")
    command = (sys.executable, "-m", "torch.distributed.run", *options, program)
    result = programs.run(*command, OPENREG_DEVICE_COUNT="2", status=0)
    assert sorted(result.stdout.splitlines()) == [f"rank {rank} of 2 attempt 1 total 2.0" for rank in range(2)]


def ip(*arguments: str) -> None:
    programs.run("ip", *arguments, status=0)


@pytest.fixture
def hosts() -> Iterator[list[tuple[str, str, str]]]:
    """Name, network interface and address of two network namespaces, which have one wire between them."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need the command ip and the rights of root")
    made = [(f"openreg{os.getpid()}{side}", f"wire{side}", f"10.213.77.{side + 1}") for side in range(2)]
    names = [name for name, _, _ in made]
    try:
        for name in names:
            ip("netns", "add", name)
        ip("link", "add", "wire0", "netns", names[0], "type", "veth", "peer", "name", "wire1", "netns", names[1])
        for name, interface, address in made:
            ip("-n", name, "address", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")
        yield made
    finally:
        for name in names:
            programs.run("ip", "netns", "delete", name)


def test_two_hosts_train_together_and_a_host_sends_a_large_sum_once(
    tmp_path: Path, hosts: list[tuple[str, str, str]]
) -> None:
    """Each host has two ranks, and sees only its own processes."""
    program = tmp_path / "train.py"
    program.write_text(START + TRAINS + SUMS + END)
    processes = [
        partial(
            programs.run,
            *("ip", "netns", "exec", name, "unshare", "--pid", "--fork", "--mount-proc"),
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(number)),
            *("--nproc-per-node", "2", "--master-addr", hosts[0][2], "--master-port", "29400", program),
            **{"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": interface},
            status=0,
        )
        for number, (name, interface, _) in enumerate(hosts)
    ]
    lines = sorted(line for result in at_once(*processes) for line in result.stdout.splitlines())
    assert lines == [f"rank {rank} of 4 attempt 0 total 6.0" for rank in range(4)]
