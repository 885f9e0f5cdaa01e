"""What each rank does in test_distributed_faults.py."""

from __future__ import annotations

import datetime
import os
import re
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from distributed_collectives import device, rank, size


def error_of(function: Callable[[], Any]) -> str:
    """The first line of the error that `function`, or the wait for the device after it, raises; or "no error"."""
    try:
        function()
        torch.accelerator.synchronize()
    except RuntimeError as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "no error"


def tell(group: Any, what: str) -> None:
    """Lets the ranks go on that wait_for() the same in this group."""
    dist.distributed_c10d._get_default_store().set(f"{group.group_name}/{what}", "")


def wait_for(group: Any, what: str) -> None:
    store = dist.distributed_c10d._get_default_store()
    store.wait([f"{group.group_name}/{what}"], datetime.timedelta(seconds=600))


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.ones(shape, device=device(), dtype=dtype)


def mismatched(what: str) -> str:
    """The error that this rank gets from a mismatched call. Checks that the group still works after it."""
    group = dist.new_group(range(size()))
    last = rank() == size() - 1

    def gather_into(shape: int) -> None:
        out = [ones(2) for _ in range(size())]
        dist.all_gather(out, ones(shape), group=group)

    def exchange(rows: int) -> None:
        """Rank 0 sends one row too many to rank 1; the others send and expect as many as they should."""
        splits = [1] * size()
        arriving = [1] * size()
        splits[1] += rows if rank() == 0 else 0
        dist.all_to_all_single(ones(sum(arriving)), ones(sum(splits)), arriving, splits, group=group)

    def point_to_point(shape: int, dtype: torch.dtype, sent: int = 2) -> None:
        if rank() == 0:
            dist.send(ones(sent), 1, group=group)
            dist.send(ones(sent), 1, group=group)
        elif rank() == 1:
            heard = error_of(lambda: dist.recv(ones(shape, dtype=dtype), 0, group=group))
            dist.recv(ones(sent), 0, group=group)  # the next message arrives whole
            if heard != "no error":
                raise RuntimeError(heard)

    functions: dict[str, Callable[[], Any]] = {
        "shapes": lambda: dist.all_reduce(ones(3 if last else 2, 5), group=group),
        "large shapes": lambda: dist.all_reduce(ones(30_000 if last else 20_000), group=group),
        "small and large": lambda: dist.all_reduce(ones(3 if last else 20_000), group=group),
        "dtypes": lambda: dist.all_reduce(ones(2, dtype=torch.int32 if last else torch.float32), group=group),
        "reductions": lambda: dist.all_reduce(ones(2), dist.ReduceOp.MAX if last else dist.ReduceOp.SUM, group=group),
        "operators": lambda: (
            dist.all_gather_into_tensor(ones(2 * size()), ones(2), group=group)
            if last
            else dist.all_reduce(ones(2), group=group)
        ),
        "barrier": lambda: dist.barrier(group) if last else dist.all_reduce(ones(2), group=group),
        "gathered sizes": lambda: gather_into(3 if last else 2),
        "splits": lambda: exchange(1),
        "broadcast": lambda: dist.broadcast(ones(3 if last else 2), 0, group=group),
        "large broadcast": lambda: dist.broadcast(ones(3_000_000 if last else 2_000_000), 0, group=group),
        "two roots": lambda: dist.broadcast(ones(2), 1 if rank() == 1 else 0, group=group),
        "reduce": lambda: dist.reduce(ones(3 if last else 2), 0, group=group),
        "gather": lambda: dist.gather(
            ones(3 if last else 2), [ones(2) for _ in range(size())] if rank() == 0 else None, 0, group=group
        ),
        "scatter": lambda: dist.scatter(
            ones(3 if last else 2), [ones(2) for _ in range(size())] if rank() == 0 else None, 0, group=group
        ),
        "send": lambda: point_to_point(3, torch.float32),
        "send of another type": lambda: point_to_point(2, torch.int32),
        "large send": lambda: point_to_point(3, torch.float32, 2_000_000),
        "large recv": lambda: point_to_point(3_000_000, torch.float32),
    }
    heard = error_of(functions[what])
    x = ones(3)
    dist.all_reduce(x, group=group)
    assert x.tolist() == [float(size())] * 3
    return heard


def unheard_failure_of_an_async_collective() -> str:
    """Nobody waits for the work, so the next wait for the stream that was current raises the failure."""
    group = dist.new_group(range(size()))

    def run() -> None:
        x = ones(2 + rank())
        dist.all_reduce(x, group=group, async_op=True)
        while True:  # until the failure has reached the stream
            (ones(3) * 2).sum().item()

    return error_of(run)


def item_raises_the_failure() -> str:
    group = dist.new_group(range(size()))
    x = ones(2 + rank())
    if torch.openreg.get_execution_mode() == "inline":  # type: ignore[attr-defined]
        return error_of(lambda: dist.all_reduce(x, group=group))
    dist.all_reduce(x, group=group)  # queued
    heard = error_of(lambda: x.sum().item())
    assert error_of(lambda: x.sum().item()) == "no error"  # the failure is raised only once
    return heard


def work_has_the_exception() -> bool:
    group = dist.new_group(range(size()))
    work = dist.all_reduce(ones(2 + rank()), group=group, async_op=True)
    assert work is not None
    while not work.is_completed():
        time.sleep(0.01)
    return not work.is_success() and "Detected mismatch" in str(work.exception())


def ddp_failure_is_heard() -> str:
    """DDP keeps only the future of a collective, not its work. The failure must be raised all the same."""
    from torch.nn.parallel import DistributedDataParallel

    group = dist.new_group(range(size()))
    model = DistributedDataParallel(torch.nn.Linear(4, 4).to(device()), process_group=group)
    group.set_timeout(datetime.timedelta(seconds=2))  # type: ignore[union-attr]
    if rank() == size() - 1:  # this rank does not take part in the reduction of the gradients
        wait_for(group, "the failure")
        return "absent"

    def step() -> None:
        model(ones(2, 4)).sum().backward()
        while True:  # until the failure has reached the stream
            model.module.weight.grad.sum().item()  # type: ignore[union-attr]

    heard = error_of(step)
    tell(group, "the failure")
    return heard


# ---- ranks that end, or do not come


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def repeat(function: Callable[[], Any]) -> None:
    """Calls a function until it raises."""
    while True:
        function()


def collective_without_the_last(seconds: float, numel: int = 2) -> tuple[str, float]:
    """The error of the first all_reduce that fails, and the seconds until then."""
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=seconds))  # type: ignore[union-attr]
    begin = time.monotonic()
    heard = error_of(lambda: repeat(lambda: dist.all_reduce(ones(numel))))
    return re.sub(r"(127\.0\.0\.1|\[[^\]]*\]|localhost)?:\d+", "", heard), time.monotonic() - begin


def sum_under_faults(program: str, seconds: float) -> tuple[str, float, float]:
    """The error of an all_reduce on this rank, or "no error", and when the call began and ended, by one clock of all."""
    from torch_openreg.openreg.faults import inject

    group = dist.new_group(range(size()))
    group.set_timeout(datetime.timedelta(seconds=seconds))  # type: ignore[union-attr]
    dist.barrier()  # of the other group: no rank begins before the last has made the group
    begin = time.monotonic()

    def call() -> None:
        with inject(program):
            dist.all_reduce(ones(2), group=group)
            torch.accelerator.synchronize()

    return error_of(call), begin, time.monotonic()


def message_with_the_last(kind: str, seconds: float) -> tuple[str, float]:
    """The error of a message that the last rank does not receive or send, and the seconds until it is raised here."""
    dist.group.WORLD.set_timeout(datetime.timedelta(seconds=seconds))  # type: ignore[union-attr]
    last = size() - 1
    functions: dict[str, Callable[[], Any]] = {
        "send": lambda: dist.send(ones(1_000_000), last),
        "recv": lambda: dist.recv(ones(1_000_000), last),
        "recv from any": lambda: dist.recv(ones(1_000_000)),
    }
    begin = time.monotonic()
    heard = error_of(functions[kind])
    return heard, time.monotonic() - begin


def die_during_a_message() -> None:
    """This rank is killed while a long message is on its way to rank 0, unless the message is faster."""
    work = dist.isend(ones(32_000_000), 0)
    del work
    die()


def recv_of_long_messages() -> str:
    """The error of the first message that does not arrive."""
    return error_of(lambda: repeat(lambda: dist.recv(ones(32_000_000), 1)))


def send_and_end() -> None:
    dist.send(ones(1000) * 5, 0)
    dist.destroy_process_group()


def recv_from_one_that_has_ended() -> float:
    x = ones(1000)
    dist.recv(x, 1)
    return float(x.sum())


def abort_of_a_message() -> str:
    group = dist.new_group(range(size()))
    if rank() != 0:
        return "absent"
    backend = group._get_backend(device())
    work = dist.irecv(ones(1_000_000), 1, group=group)
    time.sleep(0.2)
    backend.abort()
    assert work is not None
    return error_of(work.wait)


def die_during_a_collective(seconds: float = 0.0) -> None:
    """This rank is killed after this time, which it spends in collectives of many bytes."""
    threading.Timer(seconds, die).start()
    repeat(lambda: dist.all_reduce(ones(32_000_000)))


def begin_again(port: int, new_size: int) -> list[float]:
    """The survivors end their group and make another one."""
    number = rank()
    dist.destroy_process_group()
    dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=number, world_size=new_size, device_id=device())
    x = ones(2)
    dist.all_reduce(x)
    return list(x.tolist())


def group_on_a_store(port: int, new_size: int) -> list[float]:
    """Ends the group that this rank may have, and makes the next one on a store that keeps all keys."""
    if dist.is_initialized():
        dist.destroy_process_group()
    store = dist.TCPStore("127.0.0.1", port)
    number = int(os.environ["RANK"])
    dist.init_process_group("occl", store=store, rank=number, world_size=new_size, device_id=device())
    x = ones(2)
    dist.all_reduce(x)
    return list(x.tolist())


def die_after_a_collective(numel: int) -> None:
    dist.all_reduce(ones(numel))
    torch.accelerator.synchronize()
    die()


def collective_before_a_death(numel: int) -> bool:
    x = ones(numel)
    dist.all_reduce(x)
    return bool((x == size()).all())


def wait_for_a_late_rank() -> tuple[str, list[float]]:
    """The error of a wait that is shorter than the delay of the last rank, and the result of the next wait."""
    group = dist.new_group(range(size()))
    is_last = rank() == size() - 1
    dist.barrier(group)
    for other in range(size() - 1 if is_last else 0):
        wait_for(group, f"the end of the wait of rank {other}")
    x = ones(2)
    work = dist.all_reduce(x, group=group, async_op=True)
    assert work is not None
    heard = "no error"
    try:
        work.wait(datetime.timedelta(seconds=600 if is_last else 0.3))
    except RuntimeError as error:
        heard = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    tell(group, f"the end of the wait of rank {rank()}")
    work.wait()
    return heard, list(x.tolist())


def future_under_a_fault() -> tuple[str, list[float]]:
    from torch_openreg.openreg.faults import inject

    work = dist.all_reduce(ones(2), async_op=True)
    assert work is not None
    with inject("stream:1=failure"):
        heard = error_of(work.get_future)
    return heard, list(work.get_future().wait()[0].tolist())


def group_without_memory() -> tuple[str, list[float]]:
    """The error of a new group for which rank 1 has no memory; if there is none, the result of a collective."""
    from torch_openreg.openreg.faults import inject

    x = ones(2)
    groups: list[Any] = []
    with inject("rank1@segment=oom"):
        heard = error_of(lambda: groups.append(dist.new_group(range(size()))))
    if groups:
        dist.all_reduce(x, group=groups[0])
    return heard, list(x.tolist())


def a_late_rank_after_an_ephemeral_timeout() -> list[str]:
    group = dist.new_group(range(size()))
    group.set_timeout(datetime.timedelta(seconds=1))  # type: ignore[union-attr]
    group._get_backend(device())._add_ephemeral_timeout(datetime.timedelta(seconds=600))
    heard = []
    for number in range(3):
        if rank() == 1 and number == 0:
            time.sleep(2)
        if rank() == 1 and number == 1:
            wait_for(group, "the failure of the second")
        heard.append(error_of(lambda: dist.all_reduce(ones(2), group=group)))
        if rank() == 0 and number == 1:
            tell(group, "the failure of the second")
    return heard


def calls_before_the_end_of_an_extension() -> list[str]:
    """The last rank makes no call. The others make two calls before the first of them ends, and one after it."""
    group = dist.new_group(range(size()))
    group.set_timeout(datetime.timedelta(seconds=1))  # type: ignore[union-attr]
    for milliseconds in (400, 600):
        extension = datetime.timedelta(milliseconds=milliseconds)
        group._get_backend(device())._add_ephemeral_timeout(extension)
    if rank() == size() - 1:
        return []
    works = [dist.all_reduce(ones(2), group=group, async_op=True) for _ in range(2)]
    heard = [error_of(work.wait) for work in works if work is not None]
    return [*heard, error_of(lambda: dist.all_reduce(ones(2), group=group))]


def failures_end_with_the_group(port: int, end: str) -> tuple[list[str], str]:
    """Two collectives fail without the last rank. The program gets one error, ends the group and goes on."""
    first, second = (dist.all_reduce(ones(2), async_op=True) for _ in range(2))
    assert first is not None
    assert second is not None
    heard = [error_of(first.wait)]
    while not second.is_completed():
        time.sleep(0.01)
    del first, second
    while not torch.accelerator.current_stream().query():  # until the second failure has reached the stream, too
        time.sleep(0.01)  # query() reports no failure
    with tempfile.TemporaryFile("w+") as printed:
        stderr = os.dup(2)
        os.dup2(printed.fileno(), 2)
        dist.destroy_process_group() if end == "destroy" else dist.distributed_c10d._abort_process_group()
        os.dup2(stderr, 2)
        os.close(stderr)
        printed.seek(0)
        text = printed.read()
    dist.init_process_group(init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1, device_id=device())
    for _ in range(2):
        heard.append(error_of(lambda: ones(2).add_(1).tolist()))
    x = ones(2)
    dist.all_reduce(x)
    heard.append(str(x.tolist()))
    return heard, text


def abort() -> str:
    group = dist.new_group(range(size()))
    if rank() != 0:
        time.sleep(1)
        return "absent"
    backend = group._get_backend(device())
    work = dist.all_reduce(ones(2), group=group, async_op=True)
    time.sleep(0.2)
    backend.abort()
    assert work is not None
    return error_of(work.wait)


def collective_after_abort() -> str:
    group = dist.new_group(range(size()))
    group._get_backend(device()).abort()
    dist.barrier()
    return error_of(lambda: dist.all_reduce(ones(2), group=group))


def out_of_memory() -> str:
    """The allocation for the result fails on one rank, which does not take part. The others time out."""
    group = dist.new_group(range(size()))
    group.set_timeout(datetime.timedelta(seconds=2))  # type: ignore[union-attr]

    def run() -> None:
        shape = 1 << 44 if rank() == 0 else 2
        dist.all_reduce(ones(shape), group=group)

    return error_of(run)


def fork() -> int:
    """A child of a rank can neither use the group nor harm it."""
    dist.all_reduce(ones(2))
    pid = os.fork()
    if pid == 0:
        try:
            dist.all_reduce(torch.ones(2, device="openreg"))
        except RuntimeError as error:
            os._exit(17 if "Cannot re-initialize OpenReg in forked subprocess" in str(error) else 18)
        os._exit(19)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    dist.all_reduce(ones(2))
    return status


def detail() -> tuple[str, str]:
    """The result of a collective, and the error of a mismatched one, under TORCH_DISTRIBUTED_DEBUG=DETAIL."""
    x = ones(2)
    dist.all_reduce(x)
    return str(x.tolist()), error_of(lambda: dist.all_reduce(ones(2 + rank())))


def calls_on_device_0() -> list[str]:
    """The errors of calls that use the same device on both ranks. Checks that the group still works after them."""
    shared = torch.ones(2, device="openreg:0")
    calls: list[Callable[[], Any]] = [
        lambda: dist.all_reduce(shared),
        lambda: dist.all_gather([torch.empty_like(shared) for _ in range(size())], shared),
        lambda: dist.broadcast(shared, 0),
        lambda: dist.send(shared, 1) if rank() == 0 else dist.recv(shared, 0),
    ]
    errors = [error_of(call) for call in calls]
    total = ones(2)
    dist.all_reduce(total)
    assert total.tolist() == [2, 2]
    return errors
