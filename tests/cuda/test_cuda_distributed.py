"""Programs that use torch.distributed with CUDA's names run unchanged on the type cuda, in real processes."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import programs
import pytest
from cuda_builds import AS_CUDA
from programs import DISTRIBUTED, at_once, variables_of_ranks

pytestmark = AS_CUDA

START = """
import os, sys
import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
"""
SETUP = (
    START
    + """
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

data = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1))
x, y = data.cuda(), data[..., :2].cos().cuda()
expected = train(model(), x.flatten(0, 1), y.flatten(0, 1))
"""
)
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


IMPORTS = (*DISTRIBUTED, "torch._dynamo")  # an optimizer imports dynamo


def start_two(
    folder: Path, program: str, mode: str = "inline", imports: tuple[str, ...] = IMPORTS, **environment: str
) -> list[str]:
    """The lines that the first of two processes of the program prints."""
    (folder / "program.py").write_text(program)
    settings = {"TORCH_OPENREG_AS": "cuda", "OPENREG_EXECUTION": mode, "imports": imports, "status": 0, **environment}
    rank = partial(programs.run, sys.executable, "program.py", cwd=folder, **settings)
    first, _ = at_once(*(partial(rank, LOCAL_RANK=each["RANK"], **each) for each in variables_of_ranks(2)))
    return first.stdout.splitlines()


# The last line of a program whose two processes train as one process does: `found` and `expected` are close.
TRAINED = "[(0, 'cuda:0', True), (1, 'cuda:1', True)] [3.0, 3.0, 3.0]"


@pytest.mark.slow
def test_a_program_trains_under_torchrun(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(SETUP + GROUP + PROGRAMS["DDP"] + END)
    command = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "program.py")
    programs.run(*command, cwd=tmp_path, status=0, output=f"{TRAINED}\n", TORCH_OPENREG_AS="cuda")


@pytest.mark.slow
@pytest.mark.parametrize("stack", PROGRAMS)
def test_a_program_of_two_processes_trains_with_nccl_as_one_process(tmp_path: Path, stack: str) -> None:
    assert start_two(tmp_path, SETUP + GROUP + PROGRAMS[stack] + END, "chaos")[-1] == TRAINED


ATTENTION = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
mesh = init_device_mesh("cuda", (2,))
attention = nn.functional.scaled_dot_product_attention
found = []
for dtype in (torch.float32, torch.bfloat16):
    torch.manual_seed(0)
    whole = [torch.randn(1, 2, 64, 16, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
    shards = [distribute_tensor(each, mesh, [Shard(1)]).requires_grad_() for each in whole]
    gradients = [torch.autograd.grad(attention(*each, is_causal=True).sum(), each) for each in (whole, shards)]
    found += [torch.equal(a, b.full_tensor()) for a, b in zip(*gradients)] + [gradients[1][0].placements == (Shard(1),)]
if rank == 0:
    print(all(found))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_attention_of_dtensors_computes_each_shard_of_heads(tmp_path: Path) -> None:
    assert start_two(tmp_path, START + GROUP + ATTENTION) == ["True"]


@pytest.mark.slow
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
    settings = {"TORCH_OPENREG_AS": "cuda", "imports": IMPORTS, "cwd": tmp_path}
    programs.python(program, **settings, status=0, output="True True True True True ")


ERRORS = """
def error(function, *arguments, **options):
    try:
        function(*arguments, **options)
        torch.cuda.synchronize()
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"

x = torch.ones(4, 4, device="cuda")
found = [
    error(dist.all_reduce, torch.ones(2 + rank, device="cuda")),
    error(dist.all_reduce, x.t()[1:]),
    error(dist.all_gather_into_tensor, torch.zeros(3, device="cuda"), x[0]),
    error(dist.reduce_scatter_tensor, x[0], torch.zeros(3, device="cuda")),
    error(dist.all_gather, [x], x),
    error(dist.broadcast, x, 9),
    error(dist.all_reduce, torch.ones(2)),
    error(dist.all_reduce, x.short()),
    error(dist.all_reduce, x.int(), dist.ReduceOp.BAND),
    error(dist.all_reduce, x.to_sparse()),
]
dist.all_reduce(x)
if rank == 0:
    print(*found, x[0].tolist(), sep="\\n")
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "chaos"])
def test_a_bad_call_under_nccl_raises_the_error_itself(tmp_path: Path, mode: str) -> None:
    """PyTorch asks for the version of NCCL when it logs an error (c10d_logger.py). That must not hide the error."""
    start = "Detected mismatch between collectives on ranks. Rank 0 is running collective: "
    assert start_two(tmp_path, START + GROUP + ERRORS, mode) == [
        f"DistBackendError: {start}CollectiveFingerPrint(SequenceNumber=1, OpType=ALLREDUCE, TensorShape=[2], "
        "TensorDtypes=Float, ReduceOp=SUM), but Rank 1 is running collective: CollectiveFingerPrint(SequenceNumber=1, "
        "OpType=ALLREDUCE, TensorShape=[3], TensorDtypes=Float, ReduceOp=SUM).",
        "ValueError: Tensors must be contiguous",
        "ValueError: output tensor size must be equal to world_size times input tensor size",
        "ValueError: input tensor must be the same size as output size times world size",
        "ValueError: Tensor list input to scatter/gather must match number of ranks",
        "ValueError: invalid root rank: 9",
        "RuntimeError: No backend type associated with device type cpu",
        "TypeError: Input tensor data type is not supported for NCCL process group: Short",
        "ValueError: Cannot use ReduceOp.BAND with NCCL",
        "RuntimeError: NCCL does not support all_reduce with sparse tensors. Please use dense tensors instead.",
        "[2.0, 2.0, 2.0, 2.0]",
    ]


NAMES = """
from datetime import timedelta
from importlib.metadata import entry_points
from torch.distributed import distributed_c10d

backend = dist.group.WORLD._get_backend(torch.device("cuda"))
options = dist.ProcessGroupNCCL.Options()
options.config.min_ctas, options.config.net_name = 2, "Socket"
other = dist.new_group([0, 1], pg_options=options)
config = other._get_backend(torch.device("cuda")).options.config
assert isinstance(config, dist.ProcessGroupNCCL.NCCLConfig)
assert (config.min_ctas, config.net_name, config.max_ctas) == (2, "Socket", -(2**31))
distributed_c10d._set_pg_timeout(timedelta(seconds=7), other)
assert other._get_backend(torch.device("cuda")).options._timeout == timedelta(seconds=7)
distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=7))
for seconds in (14, 7):
    work = dist.all_reduce(torch.ones(2, device="cuda"), group=other, async_op=True)
    if hasattr(dist.Work, "timeout"):  # since PyTorch 2.14
        assert work.timeout == timedelta(seconds=seconds), work.timeout
    work.wait(), torch.cuda.synchronize()
for entry in entry_points(group="torch.distributed.backends"):  # PyTorch has them since 2.14
    if entry.name.startswith("nccl") and entry.name != "nccl4py":  # a package of NVIDIA's
        group = dist.new_group(backend=entry.name)
        assert isinstance(group._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL), entry.name
assert not hasattr(backend, "mem_allocator")
pool = torch.cuda.MemPool()
backend.register_mem_pool(pool), backend.deregister_mem_pool(pool)
assert backend.comm_split_count() == 0
part = dist.split_group(split_ranks=[[0], [1]])
assert backend.comm_split_count() == 1 and part.group_desc.endswith(":split:0"), part.group_desc
assert torch.cuda.nccl.version() == (2, 29, 7)
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
for hook in (default_hooks.bf16_compress_hook, default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).cuda(), device_ids=[rank])
    model.register_comm_hook(None, hook)
    model(torch.full((1, 2), 1.0 + rank / 512, device="cuda")).sum().backward()
    assert model.module.weight.grad.tolist() == [[1.0, 1.0]]  # 1 + 1/512 is 1 in bfloat16
with torch.profiler.profile() as profile:
    dist.all_reduce(torch.ones(2, device="cuda"))
assert profile._get_distributed_info()["nccl_version"] == "2.29.7"
distributed_c10d._abort_process_group()
"""


@pytest.mark.slow
def test_a_program_finds_what_it_asks_of_nccl(tmp_path: Path) -> None:
    start_two(tmp_path, START + GROUP + NAMES)


GLOO = """
dist.init_process_group(os.environ["BACKEND"])
same = torch.full((3,), rank + 1.0, device="cuda")
dist.all_reduce(same)
found = [same.tolist()]
y = torch.full((2,), float(rank), device="cuda")
(dist.recv if rank == 0 else dist.send)(y, 1 - rank)
dist.broadcast(y, 0)
found.append(y.tolist())
out = [torch.zeros(1, device="cuda") for _ in range(2)]
dist.all_gather(out, torch.full((1,), float(rank), device="cuda"))
found.append([part.item() for part in out])
part = torch.zeros(1, device="cuda")
dist.reduce_scatter_tensor(part, torch.full((2,), 4.0, device="cuda"))
found.append(part.item())
network = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).cuda(), device_ids=[rank])
network(torch.full((1, 2), rank + 1.0, device="cuda")).sum().backward()
found.append(network.module.weight.grad.tolist())
other = dist.new_group(backend="gloo")
dist.all_reduce(same, group=other)
found.append(same.tolist())
everywhere = [None, None]
dist.all_gather_object(everywhere, (found, str(same.device), dist.get_backend()))
on_cpu = torch.ones(2)
dist.all_reduce(on_cpu)
dist.barrier()
dist.monitored_barrier(group=other)
if rank == 0:
    expected = [[3.0, 3.0, 3.0], [1.0, 1.0], [0.0, 1.0], 8.0, [[1.5, 1.5]], [6.0, 6.0, 6.0]]
    assert [found for found, *_ in everywhere] == [expected, expected], everywhere
    print(*((device, backend) for _, device, backend in everywhere), on_cpu.tolist())
dist.destroy_process_group()
"""


@pytest.mark.slow
@pytest.mark.parametrize(("backend", "mode"), [("gloo", "inline"), ("cpu:gloo,cuda:gloo", "chaos")])
def test_gloo_takes_tensors_of_the_device(tmp_path: Path, backend: str, mode: str) -> None:
    lines = start_two(tmp_path, START + GLOO, mode, BACKEND=backend)
    assert lines[-1] == f"('cuda:0', '{backend}') ('cuda:1', '{backend}') [2.0, 2.0]"
