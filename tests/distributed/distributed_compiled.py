"""What each rank does in test_distributed_compiled.py: compares compiled collectives with gloo's on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from distributed_collectives import device, rank, size
from distributed_training import batches, full, make_model, same_parameters, train_alone, train_together
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

group: Any = dist.group  # after init_process_group(), its attribute WORLD is the group of all ranks


def reductions(x: Tensor) -> Tensor:
    total = functional.all_reduce(x * 2, "sum", group.WORLD)
    largest = functional.all_reduce(x + 1, "max", group.WORLD)
    return total * largest + functional.broadcast(x.neg(), 1, group.WORLD)


def gathers_and_scatters(x: Tensor) -> Tensor:
    everything = functional.all_gather_single(x.abs() + 1, 0, group.WORLD)
    share = functional.reduce_scatter_single(everything * 3, "sum", 0, group.WORLD)
    return functional.all_to_all_single(share.relu(), None, None, group.WORLD) - x


def coalesced(x: Tensor) -> Tensor:
    first, second = functional.all_reduce_coalesced([x + 1, x.neg()], "sum", group.WORLD)
    return first * second


def in_place(x: Tensor) -> Tensor:
    """PyTorch's compiler rewrites these calls into functional collectives."""
    total = x * 2
    dist.all_reduce(total)
    everything = [torch.empty_like(total) for _ in range(size())]
    dist.all_gather(everything, total + rank())
    return torch.stack(everything).prod(0)


def differentiable(x: Tensor) -> Tensor:
    everything = functional.all_gather_single_autograd(x * x, 0, group.WORLD)
    exchanged = functional.all_to_all_single_autograd(everything * 2, None, None, group.WORLD)
    return functional.reduce_scatter_single_autograd(exchanged * everything, "sum", 0, group.WORLD)


PROGRAMS: tuple[Callable[[Tensor], Tensor], ...] = (reductions, gathers_and_scatters, coalesced, in_place)


def forget_graphs() -> None:
    torch._dynamo.reset()
    counters.clear()


def run(program: Callable[[Tensor], Tensor], where: torch.device, backend: str | None) -> list[Tensor]:
    """The program's result, and the gradient of its input if the program is differentiable."""
    forget_graphs()
    x = (torch.arange(16.0) - 3 * rank()).to(where).requires_grad_(program is differentiable)
    function = program if backend is None else torch.compile(program, backend=backend, fullgraph=True)
    results = [function(x)]
    if x.requires_grad:
        results += torch.autograd.grad(results[0].sum(), x)
    return [result.detach().cpu() for result in results]


def collectives(backend: str) -> None:
    for program in (*PROGRAMS, differentiable):
        expected, actual = run(program, torch.device("cpu"), None), run(program, device(), backend)
        assert counters["stats"]["unique_graphs"] == 1, program
        assert all(map(torch.equal, actual, expected)), (program, actual, expected)


def data_parallel() -> None:
    """PyTorch cuts the graph at DDP's buckets, so that their all_reduces overlap with the backward pass."""
    forget_graphs()
    model = make_model()
    with mock.patch.object(dist, "_DEFAULT_FIRST_BUCKET_BYTES", 1000):
        parallel = DistributedDataParallel(torch.compile(model, fullgraph=True), bucket_cap_mb=0.002)
        train_together(parallel, torch.optim.SGD(model.parameters(), lr=0.1))
    assert counters["stats"]["unique_graphs"] == 1
    same_parameters(model, train_alone(make_model()))


def fully_sharded() -> None:
    forget_graphs()
    model: Any = make_model()
    for layer in model:
        if isinstance(layer, nn.Linear):
            layer.compile()
            fully_shard(layer)
    fully_shard(model)
    train_together(model, torch.optim.SGD(model.parameters(), lr=0.1))
    same_parameters(full(model), train_alone(make_model()))


def tensor_parallel() -> None:
    forget_graphs()
    mesh = init_device_mesh(device().type, (size(),))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    model = parallelize_module(make_model(), mesh, plan)
    compiled = torch.compile(model, fullgraph=True)
    expected = make_model()
    for x, _ in batches():
        compiled(x).sum().backward()
        expected(x).sum().backward()
    assert counters["stats"]["unique_graphs"] == 1
    for one, other in zip(model.parameters(), expected.parameters(), strict=True):
        gradient = one.grad.full_tensor() if isinstance(one.grad, DTensor) else one.grad
        torch.testing.assert_close(gradient, other.grad, rtol=1e-5, atol=1e-5)
