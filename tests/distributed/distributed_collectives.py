"""What each rank does in test_distributed.py: a function for each collective, which checks its own results.

Every rank can make the inputs of all ranks. So each rank compares what it received with what it computes alone.
"""

from __future__ import annotations

import datetime
import gc
import itertools
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch import Tensor

SIZES = (0, 1, 7, 1000, 100_000)  # the small ones travel in one message with their header, the large ones do not
SENT = (*SIZES, 1_000_003)  # the last one is longer than the pipe between two ranks
REDUCED = (
    torch.uint8,
    torch.int8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
)
MOVED = (*REDUCED, torch.int16, torch.bool, torch.complex64, torch.float8_e4m3fn)


def device() -> torch.device:
    return torch.device(torch.accelerator.current_accelerator().type, torch.accelerator.current_device_index())  # type: ignore[union-attr]


def rank() -> int:
    return dist.get_rank()


def size() -> int:
    return dist.get_world_size()


def values(of: int, numel: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small integers, so that sums are exact in every type and in every order."""
    return ((torch.arange(numel) * (of + 2) + of) % 3).to(dtype)


def all_values(numel: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [values(of, numel, dtype) for of in range(size())]


def on_device(tensor: Tensor) -> Tensor:
    return tensor.to(device())


def equal(actual: Tensor, expected: Tensor) -> None:
    assert actual.device == device(), actual.device
    as_bytes = expected.dtype in (torch.float8_e4m3fn,)
    actual = actual.cpu()
    torch.testing.assert_close(
        actual.view(torch.uint8) if as_bytes else actual,
        expected.view(torch.uint8) if as_bytes else expected,
        rtol=0,
        atol=0,
    )


def total(tensors: list[Tensor]) -> Tensor:
    return torch.stack(tensors).sum(0).to(tensors[0].dtype)


# ---- each collective


def all_reduce() -> None:
    for dtype in REDUCED:
        for numel in SIZES:
            x = on_device(values(rank(), numel, dtype))
            dist.all_reduce(x)
            equal(x, total(all_values(numel, dtype)))


def all_reduce_operators() -> None:
    for numel in (3, 5000):
        inputs = [values(of, numel) + 1 for of in range(size())]
        for op, expected in (
            (dist.ReduceOp.SUM, torch.stack(inputs).sum(0)),
            (dist.ReduceOp.PRODUCT, torch.stack(inputs).prod(0)),
            (dist.ReduceOp.MIN, torch.stack(inputs).amin(0)),
            (dist.ReduceOp.MAX, torch.stack(inputs).amax(0)),
            (dist._make_nccl_premul_sum(0.5), torch.stack(inputs).sum(0) * 0.5),
            (dist._make_nccl_premul_sum(on_device(torch.tensor([2.0]))), torch.stack(inputs).sum(0) * 2),
        ):
            x = on_device(inputs[rank()])
            dist.all_reduce(x, op)
            equal(x, expected)


def average() -> None:
    """As in NCCL, floating types are divided before the sum, so that it cannot overflow; integers, after the sum."""
    for numel in (3, 5000, 100_000):
        for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.complex64):
            inputs = [torch.full((numel,), 61440.0 - 4096 * of, dtype=dtype) for of in range(size())]
            expected = total([input * torch.tensor(1 / size()).to(dtype) for input in inputs])
            x = on_device(inputs[rank()])
            dist.all_reduce(x, dist.ReduceOp.AVG)
            equal(x, expected)
            x = on_device(inputs[rank()])
            dist.reduce(x, 0, dist.ReduceOp.AVG)
            equal(x, expected if rank() == 0 else inputs[rank()])
            out = torch.zeros(numel, device=device(), dtype=dtype)
            dist.reduce_scatter_tensor(out, on_device(inputs[rank()].repeat(size())), dist.ReduceOp.AVG)
            equal(out, expected)
        x = on_device(torch.full((numel,), 100 + rank()))
        dist.all_reduce(x, dist.ReduceOp.AVG)
        equal(x, torch.full((numel,), sum(100 + of for of in range(size())) // size()))


def all_reduce_of_booleans_and_complex() -> None:
    inputs = [torch.tensor([of == 0, True, False]) for of in range(size())]
    for op, expected in (
        (dist.ReduceOp.SUM, [True, True, False]),
        (dist.ReduceOp.MAX, [True, True, False]),
        (dist.ReduceOp.MIN, [size() == 1, True, False]),
        (dist.ReduceOp.PRODUCT, [size() == 1, True, False]),
    ):
        x = on_device(inputs[rank()])
        dist.all_reduce(x, op)
        equal(x, torch.tensor(expected))
    for numel in (3, 5000):
        parts = [torch.complex(values(of, numel), values(of + 1, numel)) for of in range(size())]
        x = on_device(parts[rank()])
        dist.all_reduce(x)
        equal(x, torch.stack(parts).sum(0))


def all_reduce_gives_the_same_bits() -> None:
    """The sums have the same bits on all ranks, and each time."""
    for numel, op in itertools.product((1000, 100_000, 1_000_003), (dist.ReduceOp.SUM, dist.ReduceOp.AVG)):
        input = torch.randn(numel, generator=torch.Generator().manual_seed(rank()))
        sums = []
        for _ in range(3):
            x = on_device(input)
            dist.all_reduce(x, op)
            sums.append(x)
        gathered = torch.zeros(size() * numel, device=device())
        dist.all_gather_into_tensor(gathered, sums[0])
        for other in (*sums[1:], *gathered.view(size(), numel)):
            equal(other, sums[0].cpu())


def broadcast() -> None:
    for dtype in MOVED:
        for numel in SIZES:
            root = (numel + 1) % size()
            x = on_device(values(rank(), numel, dtype))
            dist.broadcast(x, root)
            equal(x, values(root, numel, dtype))


def a_broadcast_does_not_wait_for_its_receivers() -> None:
    """The others call broadcast only after the root has told them that its call is done."""
    store, key = dist.distributed_c10d._get_default_store(), f"told/{torch.openreg.get_execution_mode()}"  # type: ignore[attr-defined]
    x = on_device(values(rank(), 1000))
    if rank() == 0:
        dist.broadcast(x, 0)
        torch.accelerator.synchronize()
        store.set(key, "done")
    else:
        store.wait([key])
        dist.broadcast(x, 0)
    equal(x, values(0, 1000))


def reduce() -> None:
    for numel in SIZES:
        for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
            root = (numel + 1) % size()
            x = on_device(values(rank(), numel))
            dist.reduce(x, root, op)
            expected = total(all_values(numel))
            expected = expected / size() if op == dist.ReduceOp.AVG else expected
            equal(x, expected if rank() == root else values(rank(), numel))


def all_gather() -> None:
    for dtype in MOVED:
        for numel in SIZES:
            out = [on_device(torch.zeros(numel).to(dtype)) for _ in range(size())]
            dist.all_gather(out, on_device(values(rank(), numel, dtype)))
            for actual, expected in zip(out, all_values(numel, dtype), strict=True):
                equal(actual, expected)


def uneven_all_gather() -> None:
    for factor in (0, 1, 3000):
        lengths = [of * factor + 1 for of in range(size())]
        out = [torch.zeros(length, device=device()) for length in lengths]
        dist.all_gather(out, on_device(values(rank(), lengths[rank()])))
        for of, actual in enumerate(out):
            equal(actual, values(of, lengths[of]))


def all_gather_into_tensor() -> None:
    for numel in SIZES:
        out = torch.zeros(size() * numel, device=device())
        dist.all_gather_into_tensor(out, on_device(values(rank(), numel)))
        equal(out, torch.cat(all_values(numel)))
        # As FSDP: the input is a part of the output.
        out = torch.zeros(size(), numel, device=device())
        out[rank()] = on_device(values(rank(), numel))
        dist.all_gather_into_tensor(out.view(-1), out[rank()])
        equal(out.view(-1), torch.cat(all_values(numel)))


def reduce_scatter() -> None:
    for dtype in REDUCED:
        for numel in SIZES:
            # The part of rank `of` for rank `to`.
            parts = [[values(of + to, numel, dtype) for to in range(size())] for of in range(size())]
            out = on_device(torch.zeros(numel, dtype=dtype))
            dist.reduce_scatter(out, [on_device(part) for part in parts[rank()]])
            equal(out, total([parts[of][rank()] for of in range(size())]))


def uneven_reduce_scatter() -> None:
    for factor in (0, 1, 3000):
        lengths = [to * factor + 1 for to in range(size())]
        parts = [[values(of + to, lengths[to]) for to in range(size())] for of in range(size())]
        out = torch.zeros(lengths[rank()], device=device())
        dist.reduce_scatter(out, [on_device(part) for part in parts[rank()]])
        equal(out, total([parts[of][rank()] for of in range(size())]))


def reduce_scatter_tensor() -> None:
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        for numel in SIZES:
            inputs = [values(of, size() * numel) for of in range(size())]
            out = torch.zeros(numel, device=device())
            dist.reduce_scatter_tensor(out, on_device(inputs[rank()]), op)
            expected = total(inputs).view(size(), numel)[rank()]
            equal(out, expected / size() if op == dist.ReduceOp.AVG else expected)
            # As FSDP: the output is a part of the input.
            x = on_device(inputs[rank()])
            dist.reduce_scatter_tensor(x.view(size(), numel)[rank()], x, op)
            equal(x.view(size(), numel)[rank()], expected / size() if op == dist.ReduceOp.AVG else expected)


def all_to_all_single() -> None:
    for dtype in MOVED:
        for rows in (0, 1, 2000):
            inputs = [values(of, size() * rows * 2, dtype).view(-1, 2) for of in range(size())]
            out = on_device(torch.zeros(size() * rows, 2).to(dtype))
            dist.all_to_all_single(out, on_device(inputs[rank()]))
            equal(out, torch.cat([part.view(size(), rows, 2)[rank()] for part in inputs]))


def uneven_all_to_all_single() -> None:
    for factor in (1, 2000):
        # Rank `of` sends splits[of][to] rows to rank `to`. Some of these numbers are 0.
        splits = [[(of * to) % 3 * factor for to in range(size())] for of in range(size())]
        inputs = [values(of, sum(splits[of])) for of in range(size())]
        arriving = [splits[of][rank()] for of in range(size())]
        out = torch.zeros(sum(arriving), device=device())
        dist.all_to_all_single(out, on_device(inputs[rank()]), arriving, splits[rank()])
        equal(out, torch.cat([inputs[of].split(splits[of])[rank()] for of in range(size())]))


def all_to_all() -> None:
    for factor in (0, 1, 2000):
        parts = [[values(of + to, factor * (of + to + 1)) for to in range(size())] for of in range(size())]
        out = [torch.zeros(parts[of][rank()].numel(), device=device()) for of in range(size())]
        dist.all_to_all(out, [on_device(part) for part in parts[rank()]])
        for of in range(size()):
            equal(out[of], parts[of][rank()])


def gather() -> None:
    for numel in SIZES:
        root = (numel + 1) % size()
        out = [torch.zeros(numel, device=device()) for _ in range(size())] if rank() == root else None
        dist.gather(on_device(values(rank(), numel)), out, root)
        for of, actual in enumerate(out or ()):
            equal(actual, values(of, numel))


def scatter() -> None:
    for numel in SIZES:
        root = (numel + 1) % size()
        out = torch.zeros(numel, device=device())
        dist.scatter(out, [on_device(part) for part in all_values(numel)] if rank() == root else None, root)
        equal(out, values(rank(), numel))


def send_and_recv() -> None:
    for dtype in MOVED:
        for numel in SENT:
            right, left = (rank() + 1) % size(), (rank() - 1) % size()
            x, y = on_device(values(rank(), numel, dtype)), on_device(torch.zeros(numel).to(dtype))
            if rank() % 2 == 0:
                dist.send(x, right)
                assert dist.recv(y, left) == left
            else:
                dist.recv(y, left)
                dist.send(x, right)
            equal(y, values(left, numel, dtype))


def recv_from_any() -> None:
    for numel in (2000, 1_000_003):
        if rank() == 0:
            seen = set()
            for _ in range(size() - 1):
                y = torch.zeros(numel, device=device())
                source = dist.recv(y)
                seen.add(source)
                equal(y, values(source, numel))
            assert seen == set(range(1, size()))
        else:
            dist.send(on_device(values(rank(), numel)), 0)
        dist.barrier()  # or a rank's second message could come before another rank's first one


def crossed_isend_irecv() -> None:
    """Two ranks send to each other before they receive. With one stream for both directions this hangs."""
    other = rank() ^ 1
    for numel in (50_000, 1_000_003):
        a, b = torch.zeros(numel, device=device()), torch.zeros(numel, device=device())
        sends = [dist.isend(on_device(values(rank() + i, numel)), other) for i in range(2)]
        receives = [dist.irecv(a, other), dist.irecv(b, other)]
        for work in (*receives, *sends):
            work.wait()  # type: ignore[union-attr]
        equal(a, values(other, numel))
        equal(b, values(other + 1, numel))


def batch_isend_irecv() -> None:
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for numel in (3000, 1_000_003):
        received = [torch.zeros(numel, device=device()) for _ in range(2)]
        operations = [dist.P2POp(dist.isend, on_device(values(rank() + i, numel)), right) for i in range(2)]
        operations += [dist.P2POp(dist.irecv, received[i], left) for i in range(2)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        for i in range(2):
            equal(received[i], values(left + i, numel))


def a_batch_keeps_its_place_between_other_messages() -> None:
    """Messages between two ranks match in the order of the calls, whether a call is part of a batch or not."""
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    for _ in range(10):
        sent = [on_device(values(rank() + i, 1000)) for i in range(4)]
        received = [torch.zeros(1000, device=device()) for _ in range(4)]
        works = [dist.isend(sent[0], right), dist.irecv(received[0], left)]
        for number in (1, 2):
            batch = [
                dist.P2POp(dist.isend, sent[number], right),
                dist.P2POp(dist.irecv, received[number], left),
            ]
            works += dist.batch_isend_irecv(batch)
        works += [dist.isend(sent[3], right), dist.irecv(received[3], left)]
        for work in works:
            work.wait()  # type: ignore[union-attr]
        for i in range(4):
            equal(received[i], values(left + i, 1000))


def a_tensor_may_change_after_its_send() -> None:
    right, left = (rank() + 1) % size(), (rank() - 1) % size()
    x, y = on_device(values(rank(), 500_000)), torch.zeros(500_000, device=device())
    for i in range(5):
        work = dist.isend(x, right)
        receive = dist.irecv(y, left)
        assert work is not None and receive is not None
        work.wait()
        x += 1
        receive.wait()
        equal(y, values(left, 500_000) + i)


def barrier() -> None:
    for _ in range(5):
        dist.barrier()
    dist.barrier(device_ids=[device().index])


def object_collectives() -> None:
    mine = {"rank": rank(), "text": "x" * rank() * 10_000}
    everybody: list[Any] = [None] * size()
    dist.all_gather_object(everybody, mine)
    assert [one["rank"] for one in everybody] == list(range(size()))
    shared = ["from 0", 17] if rank() == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    assert shared == ["from 0", 17]
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, list(range(size())) if rank() == 0 else None, 0)
    assert scattered == [rank()]
    gathered: list[Any] | None = [None] * size() if rank() == 0 else None
    dist.gather_object(rank(), gathered, 0)
    assert gathered in (None, list(range(size())))
    if size() % 2 == 0:
        objects = [mine] if rank() % 2 == 0 else [None]
        if rank() % 2 == 0:
            dist.send_object_list(objects, rank() + 1)
        else:
            dist.recv_object_list(objects, rank() - 1)
            assert objects[0]["rank"] == rank() - 1  # type: ignore[index]


def functional_collectives() -> None:
    group = dist.group.WORLD
    assert group is not None
    x = on_device(values(rank(), size() * 3))
    equal(functional.all_reduce(x, "sum", group) + 0, total(all_values(size() * 3)))
    equal(functional.all_gather_tensor(x, 0, group) + 0, torch.cat(all_values(size() * 3)))
    expected = total(all_values(size() * 3)).view(size(), 3)[rank()]
    equal(functional.reduce_scatter_tensor(x, "sum", 0, group) + 0, expected)
    equal(functional.broadcast(x, 0, group) + 0, values(0, size() * 3))
    parts = functional.all_to_all_single(x, None, None, group) + 0
    equal(parts, torch.cat([part.view(size(), 3)[rank()] for part in all_values(size() * 3)]))
    first, second = functional.all_reduce_coalesced([x, x * 2], "sum", group)
    equal(first + 0, total(all_values(size() * 3)))
    equal(second + 0, total(all_values(size() * 3)) * 2)
    (gathered,) = functional.all_gather_into_tensor_coalesced([x], group)
    equal(gathered + 0, torch.cat(all_values(size() * 3)))
    (scattered,) = functional.reduce_scatter_tensor_coalesced([x], "sum", [0], group)
    equal(scattered + 0, expected)


def coalescing_manager() -> None:
    for numel in (5, 50_000):
        xs = [on_device(values(rank() + i, numel)) for i in range(3)]
        with dist._coalescing_manager(device=device(), async_ops=True) as manager:
            for x in xs:
                dist.all_reduce(x)
        manager.wait()
        for i, x in enumerate(xs):
            equal(x, total([values(of + i, numel) for of in range(size())]))
        outs = [torch.zeros(size() * numel, device=device()) for _ in range(2)]
        with dist._coalescing_manager(device=device()):
            for i, out in enumerate(outs):
                dist.all_gather_into_tensor(out, on_device(values(rank() + i, numel)))
        for i, out in enumerate(outs):
            equal(out, torch.cat([values(of + i, numel) for of in range(size())]))


def a_collective_that_a_coalesced_call_refuses_is_not_queued() -> None:
    own = on_device(values(rank(), 5))
    elsewhere = values(rank(), 5).to(device=(device().index + 1) % torch.accelerator.device_count())
    call = dist.group.WORLD.allreduce_coalesced  # type: ignore[union-attr]
    refused("All tensors of a coalesced call must be on one device", RuntimeError, call, [own, elsewhere])
    torch.accelerator.synchronize()
    assert torch.equal(elsewhere.cpu(), values(rank(), 5))
    x, y = on_device(values(rank(), 5)), on_device(values(rank() + 1, 5))
    call([x, y]).wait()
    dist.all_reduce(y)
    equal(x, total(all_values(5)))
    equal(y, total([values(of + 1, 5) for of in range(size())]) * size())


def groups() -> None:
    even = dist.new_group(range(0, size(), 2))
    pairs = [dist.new_group([first, first + 1]) for first in range(0, size() - 1, 2)]
    x = on_device(values(rank(), 10))
    if rank() % 2 == 0:
        dist.all_reduce(x, group=even)
        equal(x, total([values(of, 10) for of in range(0, size(), 2)]))
    y = on_device(values(rank(), 10))
    dist.all_reduce(y, group=pairs[rank() // 2])
    equal(y, total([values(of, 10) for of in (rank() & ~1, rank() | 1)]))
    z = on_device(values(rank(), 10))
    dist.broadcast(z, group=pairs[rank() // 2], src=rank() | 1)
    equal(z, values(rank() | 1, 10))
    w = on_device(values(rank(), 300_000))
    received = torch.zeros(300_000, device=device())
    works = [f(t, rank() ^ 1, group=pairs[rank() // 2]) for f, t in ((dist.isend, w), (dist.irecv, received))]
    for work in works:
        work.wait()
    equal(received, values(rank() ^ 1, 300_000))


def split_group() -> None:
    backend = dist.group.WORLD._get_backend(device())  # type: ignore[union-attr]
    splits = backend.comm_split_count()
    ranks = [list(range(0, size(), 2)), list(range(1, size(), 2))]
    part = dist.split_group(split_ranks=ranks, timeout=datetime.timedelta(seconds=500))
    assert part is not None
    assert backend.comm_split_count() == splits + 1
    x = on_device(values(rank(), 10))
    dist.all_reduce(x, group=part)
    equal(x, total([values(of, 10) for of in ranks[rank() % 2]]))
    # Each group has options of its own: PyTorch writes the name and the timeout of the new group into its copy.
    whole, own = (group._get_backend(device()).options for group in (dist.group.WORLD, part))
    assert whole.group_name == dist.group.WORLD.group_name and own.group_name == part.group_name != whole.group_name
    assert own._timeout == datetime.timedelta(seconds=500) != whole._timeout


def split_group_of_ranks_that_made_different_numbers_of_groups() -> None:
    """PyTorch's name of the new group contains the number of groups that the process has."""
    alone = [dist.new_group([rank()], use_local_synchronization=True) for _ in range(rank())]
    part = dist.split_group(split_ranks=[list(range(0, size(), 2)), list(range(1, size(), 2))])
    x = on_device(values(rank(), 10))
    dist.all_reduce(x, group=part)
    equal(x, total([values(of, 10) for of in range(rank() % 2, size(), 2)]))
    for group in [part, *alone]:
        dist.destroy_process_group(group)


# ---- streams and Work


def a_collective_waits_for_what_is_queued_on_the_current_stream() -> None:
    for _ in range(20):
        x = torch.zeros(20_000, device=device())
        stream = torch.Stream(device())
        stream.wait_stream(torch.accelerator.current_stream())
        with stream:
            for _ in range(10):
                x += 1
            dist.all_reduce(x)
            y = x * 2
        torch.accelerator.current_stream().wait_stream(stream)
        equal(y, torch.full((20_000,), 20.0 * size()))


def async_collectives_overlap_and_wait_orders_them() -> None:
    xs = [on_device(values(rank() + i, 30_000)) for i in range(8)]
    works = [dist.all_reduce(x, async_op=True) for x in xs]
    for i, (x, work) in enumerate(zip(xs, works, strict=True)):
        assert work is not None
        assert work.wait()
        equal(x + 0, total([values(of + i, 30_000) for of in range(size())]))
        assert work.is_completed()
        assert work.is_success()
        assert work.exception() is None


def an_input_may_go_before_the_collective_is_done() -> None:
    """The work keeps the input's memory until the collective is done, as with TORCH_NCCL_AVOID_RECORD_STREAMS."""
    for _ in range(10):
        out = torch.zeros(size() * 40_000, device=device())
        work = dist.all_gather_into_tensor(out, on_device(values(rank(), 40_000)), async_op=True)
        noise = [torch.full((40_000,), -1.0, device=device()) for _ in range(3)]
        assert work is not None
        work.wait()
        equal(out, torch.cat(all_values(40_000)))
        del noise
    gc.collect()


def read_before_wait() -> tuple[str, float]:
    """The sanitizer's report for a result that is read too early, and the result after the wait."""
    from torch_openreg.openreg import sanitizer

    x = torch.full((1000,), float(rank() + 1), device=device())
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    try:
        x.sum()
        report = "no report"
    except sanitizer.Error as error:
        report = str(error)
    work.wait()
    return report, x[0].item()


def futures() -> None:
    x = on_device(values(rank(), 5000))
    work = dist.all_reduce(x, async_op=True)
    assert work is not None
    future = work.get_future().then(lambda done: done.value()[0] * 10)
    equal(future.wait(), total(all_values(5000)) * 10)
    assert work.get_future_result().wait() == 0
    # The future of an all_gather holds one tensor for all ranks if the sizes are equal, else one for each rank.
    for longer in (0, 1):
        inputs = [values(of, 5 + of * longer) for of in range(size())]
        out = [torch.zeros(input.numel(), device=device()) for input in inputs]
        work = dist.all_gather(out, on_device(inputs[rank()]), async_op=True)
        assert work is not None
        gathered = work.get_future().wait()
        for actual, expected in zip(gathered if longer else gathered[0], inputs, strict=True):
            equal(actual, expected)
    work = dist.all_reduce(on_device(values(rank(), 5000)), async_op=True)
    assert work is not None
    work.block_current_stream()
    equal(work.result()[0] + 0, total(all_values(5000)))


def completion_hook() -> None:
    group = dist.new_group(range(size()))
    infos: list[Any] = []
    group._register_on_completion_hook(infos.append)
    for _ in range(20):
        dist.all_reduce(torch.ones(5, device=device()), group=group)
    group._wait_for_pending_works()  # waits for the calls of the hook, too
    assert [(info.op_type.name, info.seq) for info in infos] == [("ALLREDUCE", number + 1) for number in range(20)]
    assert infos[0].time_finished >= infos[0].time_started
    assert infos[0].active_duration.total_seconds() >= 0


def observers_are_told_of_collectives() -> None:
    from openreg_c import KERNEL, Observer

    x = torch.ones(100, device=device())
    with Observer(KERNEL) as observer:
        dist.all_reduce(x)
        torch.accelerator.synchronize()
    told = [event for event in observer.events if event[5] == "occl:all_reduce"]
    assert [event[1] for event in told] == [0, 1]
    assert (x.data_ptr(), x.data_ptr() + 400, 2) in told[0][7]


def observers_are_told_of_messages() -> None:
    from openreg_c import KERNEL, Observer

    x, y = (torch.zeros(500_000, device=device()) for _ in range(2))
    with Observer(KERNEL) as observer:
        works = [dist.isend(x, (rank() + 1) % size()), dist.irecv(y, (rank() - 1) % size())]
        for work in works:
            work.wait()  # type: ignore[union-attr]
        torch.accelerator.synchronize()
    for name, tensor, access in (("occl:send", x, 1), ("occl:recv", y, 2)):
        told = [event for event in observer.events if event[5] == name]
        assert [event[1] for event in told] == [0, 1]
        assert told[0][7] == [(tensor.data_ptr(), tensor.data_ptr() + 2_000_000, access)]


def a_trace_shows_a_collective_as_a_kernel_of_the_library_s_stream() -> None:
    from trace_rules import Trace, violations

    x = torch.ones(1000, device=device())
    y = torch.ones(1000, device=device())
    dist.barrier()
    with torch.profiler.profile() as profiled:
        works = [dist.all_reduce(each, async_op=True) for each in (x, y)]
        for work in works:
            work.wait()  # type: ignore[union-attr]
        x.add_(y)
        torch.accelerator.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        profiled.export_chrome_trace(f"{folder}/trace.json")
        trace = Trace.read(f"{folder}/trace.json")
    assert violations(trace) == []
    kernels = trace.named("openreg::occl:all_reduce")
    assert len(kernels) == 2
    (add,) = trace.named("openreg::add_.Tensor")
    for kernel in kernels:
        assert (kernel["cat"], kernel["pid"]) == ("kernel", device().index)
        assert kernel["tid"] != add["tid"]
        assert trace.calls[kernel["args"]["correlation"]]["name"] == "orLaunchDeferred"
        assert trace.operator_of(kernel) == "occl:all_reduce"
        assert kernel["end"] <= add["ts"]


# ---- what is refused


def refused(message: str, kind: type[Exception], function: Any, *arguments: Any, **options: Any) -> None:
    try:
        function(*arguments, **options)
    except kind as error:
        assert message in str(error), str(error)
    else:
        raise AssertionError(f"no error: {message}")


def captured(compute: Callable[[], object]) -> torch.accelerator.Graph:
    graph = torch.accelerator.Graph()
    torch.accelerator.synchronize()
    with torch.Stream(device()), graph:
        compute()
    return graph


def a_captured_collective_runs_at_each_replay() -> None:
    x, gathered = on_device(values(rank(), 1000)), torch.empty(size() * 1000, device=device())
    y = torch.empty(1000, device=device())
    peer = (rank() + 1) % size()

    def compute() -> None:
        y.copy_(x * 2)
        dist.all_reduce(y)
        work = dist.all_gather_into_tensor(gathered, y + rank(), async_op=True)
        messages = [dist.P2POp(dist.isend, x, peer), dist.P2POp(dist.irecv, y, (rank() - 1) % size())]
        assert work is not None
        work.wait()
        for message in dist.batch_isend_irecv(messages):
            message.wait()

    graph = captured(compute)
    for step in range(1, 4):  # nothing ran at the capture; other collectives may run between replays
        x.copy_(on_device(values(rank(), 1000) * step))
        graph.replay()
        summed = total([2 * step * each for each in all_values(1000)])
        equal(gathered, torch.cat([summed + of for of in range(size())]))
        equal(y, step * values((rank() - 1) % size(), 1000))
        dist.all_reduce(torch.ones(1, device=device()))


def a_replay_without_its_group_fails() -> None:
    x = torch.ones(4, device=device())
    made = [dist.new_group(range(size()))]
    graph = captured(lambda: dist.all_reduce(x, group=made[0]))
    graph.replay()
    assert x[0].item() == size()
    dist.destroy_process_group(made.pop())
    gc.collect()
    graph.replay()
    refused("the process group was destroyed after the capture", RuntimeError, torch.accelerator.synchronize)
    torch.accelerator.synchronize()


def bad_arguments() -> None:
    x = torch.ones(4, 4, device=device())
    name = device().type.upper()
    library = "NCCL" if name == "CUDA" else "OCCL"
    refused("Tensors must be contiguous", ValueError, dist.all_reduce, x.t()[1:])
    refused("Tensors must be contiguous", ValueError, dist.broadcast, x[:, 1], 0)
    backend = dist.group.WORLD._get_backend(device())  # type: ignore[union-attr]
    refused(f"Tensors must be {name} and dense", ValueError, backend.allreduce, [torch.ones(2)])
    refused("Cannot use ReduceOp.AVG with Boolean inputs", TypeError, dist.all_reduce, x > 0, dist.ReduceOp.AVG)
    refused(f"Cannot use ReduceOp.BAND with {library}", ValueError, dist.all_reduce, x.int(), dist.ReduceOp.BAND)
    refused("all_reduce does not support", ValueError, dist.all_reduce, x + 0j, dist.ReduceOp.MAX)
    refused(
        f"Float8 dtypes are not currently supported for {library} reductions",
        TypeError,
        dist.all_reduce,
        x.to(torch.float8_e4m3fn),
    )
    refused(
        f"Input tensor data type is not supported for {library} process group: Short",
        TypeError,
        dist.all_reduce,
        x.short(),
    )
    refused(
        "output tensor size must be equal to world_size times input tensor size",
        ValueError,
        dist.all_gather_into_tensor,
        torch.ones(size() * 16 + 1, device=device()),
        x,
    )
    refused(
        "input tensor must be the same size as output size times world size",
        ValueError,
        dist.reduce_scatter_tensor,
        torch.ones(3, device=device()),
        x,
    )
    refused(
        "input tensor must be the same type as the output tensor.",
        TypeError,
        dist.reduce_scatter_tensor,
        torch.ones(16 // size(), device=device(), dtype=torch.int32),
        x,
    )
    refused(
        "Split sizes doesn't match total dim 0 size",
        RuntimeError,
        dist.all_to_all_single,
        torch.ones(4, device=device()),
        torch.ones(4, device=device()),
        [4] * size(),
        [4] * size(),
    )
    assert not hasattr(backend, "mem_allocator")
    dist.barrier()


def the_timeout_of_a_group_is_set() -> None:
    group = dist.new_group(range(size()))
    backend = group._get_backend(device())
    group.set_timeout(datetime.timedelta(seconds=50))
    assert backend.options._timeout == datetime.timedelta(seconds=50)
    backend._set_default_timeout(datetime.timedelta(seconds=40))
    assert backend.options._timeout == datetime.timedelta(seconds=40)


def channels_last_is_contiguous() -> None:
    x = torch.ones(2, 3, 4, 4, device=device()).to(memory_format=torch.channels_last)
    dist.all_reduce(x)
    equal(x, torch.full((2, 3, 4, 4), float(size())))
