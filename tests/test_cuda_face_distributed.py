"""Programs that train with the backend "nccl", unchanged, on the face cuda: real processes, started by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from conftest import run

SETUP = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)).cuda()

def train(network, x, y):
    optimizer, losses = torch.optim.SGD(network.parameters(), 0.1), []
    for _ in range(5):
        loss = nn.functional.mse_loss(network(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.full_tensor() if hasattr(p, "full_tensor") else p.detach() for p in network.parameters()]

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
data = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
x, y = data.cuda(), data[..., :2].cos().cuda()
expected = train(model(), x.flatten(0, 1), y.flatten(0, 1))
"""
GROUP = """
assert dist.is_nccl_available()
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
assert dist.get_backend() == "nccl"
"""

PROGRAMS = {
    "DDP": """
network = nn.parallel.DistributedDataParallel(model(), device_ids=[rank])
found = train(network, x[rank], y[rank])
""",
    "FSDP2": """
from torch.distributed.fsdp import fully_shard
network = model()
fully_shard(network[0]), fully_shard(network)
found = train(network, x[rank], y[rank])
""",
    "FSDP2 from the device meta": """
from torch.distributed.fsdp import fully_shard
with torch.device("meta"):
    network = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
fully_shard(network[0]), fully_shard(network)
network.to_empty(device="cuda")
torch.manual_seed(3)
network[0].reset_parameters(), network[2].reset_parameters()
alone = model()
alone.load_state_dict({name: p.full_tensor() for name, p in network.state_dict().items()})
assert alone[0].weight.unique().numel() == 128  # no shard repeats another one's numbers
expected = train(alone, x.flatten(0, 1), y.flatten(0, 1))
found = train(network, x[rank], y[rank])
""",
}
END = """
close = all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected))
everywhere = [None, None]
assert isinstance(dist.group.WORLD._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL)
dist.all_gather_object(everywhere, (rank, str(found[0].device), close))
total = torch.full((3,), float(rank + 1), device="cuda")
dist.all_reduce(total)
options = dist.ProcessGroupNCCL.Options()
options.is_high_priority_stream = True
other = dist.new_group([0, 1], pg_options=options)
dist.broadcast(total, 1, group=other)
if rank == 0:
    print(everywhere, total.tolist())
dist.destroy_process_group()
"""


def assert_trains_as_one_process(folder: Path, program: str, mode: str) -> None:
    """`program` trains in two processes, and leaves its parameters in `found`."""
    (folder / "train.py").write_text(program + END)
    result = run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"],
        folder,
        {"TORCH_OPENREG_AS": "cuda", "OPENREG_EXECUTION": mode, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr
    # The lines before it are the libraries' own.
    assert result.stdout.splitlines()[-1] == "[(0, 'cuda:0', True), (1, 'cuda:1', True)] [3.0, 3.0, 3.0]"


@pytest.mark.parametrize("stack", PROGRAMS)
@pytest.mark.parametrize("mode", ["inline", "chaos"])
def test_a_program_of_two_processes_trains_with_nccl_as_one_process(tmp_path: Path, stack: str, mode: str) -> None:
    assert_trains_as_one_process(tmp_path, SETUP + GROUP + PROGRAMS[stack], mode)


def test_random_operators_draw_on_dtensors(tmp_path: Path) -> None:
    program = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, rand

torch.cuda.set_device(0)
dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
mesh = init_device_mesh("cuda", (1,))
x = rand(64, device_mesh=mesh, placements=[Shard(0)])
def dropout():
    return torch.nn.functional.dropout(x + 1)

for draw in (x.uniform_, x.normal_, x.bernoulli_, dropout, lambda: torch.rand_like(x)):
    found = []
    for seed in (1, 1, 2):
        torch.cuda.manual_seed(seed)
        found.append(draw().to_local().tolist())
    print(found[0] == found[1] != found[2], end=" ")
dist.destroy_process_group()
"""
    result = run([sys.executable, "-c", program], tmp_path, {"TORCH_OPENREG_AS": "cuda"})
    assert (result.returncode, result.stdout) == (0, "True True True True True "), result.stderr
