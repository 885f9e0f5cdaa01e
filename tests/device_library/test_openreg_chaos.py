"""The order of work in orExecutionChaos: what runs, when, and in which order."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from openreg_c import CHAOS, DeferredFn, call, get_pointer, lib
from openreg_process import compile_program, cpp_compiler, output_of, run_program
from openreg_work import (
    NOT_READY,
    Gate,
    callback,
    copy_async,
    is_pending,
    kept,
    launch,
    launch_host,
    record,
    synchronize,
    wait_event,
)

pytestmark = pytest.mark.usefixtures("clean_device")
LATE = 0
SEEDS = range(4)  # LATE, and three that are random


@pytest.fixture
def late() -> None:
    call("orSetExecutionMode", CHAOS, LATE)


@pytest.fixture
def seen() -> list[str]:
    """The names of the kernels that have run, in their order."""
    return []


@pytest.fixture
def kernel(seen: list[str]) -> Callable[[int | None, str], None]:
    """A function that launches a kernel with a name."""
    return lambda stream, name: launch(stream, lambda: seen.append(name))


# ---- Late ------------------------------------------------------------------------------------------------------------


def test_only_what_somebody_waits_for_runs(
    late: None, stream: int, other: int, event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    kernel(other, "needed by an event")
    record(event, other)
    kernel(other, "not needed")
    kernel(stream, "first")
    wait_event(stream, event)
    kernel(stream, "second")
    assert seen == []
    synchronize(stream)
    assert seen == ["first", "needed by an event", "second"]
    call("orDeviceSynchronize")
    assert seen[3:] == ["not needed"]


def test_what_was_launched_last_runs_first_unless_a_stream_or_an_event_orders_it(
    late: None, make_stream: Callable[..., int], event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    a, b, c = (make_stream() for _ in range(3))
    kernel(a, "a1")
    record(event, a)
    kernel(b, "b1")
    kernel(b, "b2")
    wait_event(c, event)
    kernel(c, "c1")
    kernel(a, "a2")
    call("orDeviceSynchronize")
    assert seen == ["b1", "b2", "a1", "a2", "c1"]


def test_copies_from_and_to_the_host_come_last(
    late: None, stream: int, other: int, device_memory: int, pinned_memory: int
) -> None:
    ctypes.memset(pinned_memory, 1, 1)
    call("orMemset", device_memory, 0, 1)
    read: list[bytes] = []
    launch(other, lambda: read.append(ctypes.string_at(lib.orGetKernelPointer(device_memory), 1)))
    copy_async(device_memory, pinned_memory, 1, stream)
    call("orDeviceSynchronize")
    assert read == [b"\0"]


# ---- Every seed ------------------------------------------------------------------------------------------------------


def order_of_a_program(seed: int, streams: list[int], event: int) -> list[str]:
    call("orSetExecutionMode", CHAOS, seed)
    order: list[str] = []
    for number in range(24):
        index = number * 7 % len(streams)
        launch_with = launch_host if number % 5 == 4 else launch
        launch_with(streams[index], lambda name=f"{number} on {index}": order.append(name))
        if number % 6 == 3:
            record(event, streams[index])
            wait_event(streams[(index + 1) % len(streams)], event)
        if number == 11:
            synchronize(streams[0])
    call("orDeviceSynchronize")
    assert len(order) == 24
    return order


@pytest.mark.parametrize("seed", [LATE, 1])
def test_a_seed_gives_the_same_order_in_each_run(seed: int, make_stream: Callable[..., int], event: int) -> None:
    streams = [make_stream() for _ in range(4)]
    orders = {tuple(order_of_a_program(seed, streams, event)) for _ in range(200)}
    assert len(orders) == 1


def test_a_seed_gives_the_same_order_in_another_process() -> None:
    code = f"""
        import sys
        sys.path.append({str(Path(__file__).parent)!r})
        from test_openreg_chaos import order_of_a_program
        streams = [get_pointer("orStreamCreate") for _ in range(4)]
        print(order_of_a_program(3, streams, get_pointer("orEventCreate")))
    """
    assert output_of(code) == output_of(code)


def test_seeds_find_the_orders_of_two_streams(
    stream: int, other: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    orders = set()
    for seed in range(1, 300):
        call("orSetExecutionMode", CHAOS, seed)
        seen.clear()
        for name in ("a", "b"):
            kernel(stream, name)
            kernel(other, name.upper())
        call("orDeviceSynchronize")
        orders.add("".join(seen))
    assert orders >= {"abAB", "ABab", "aABb", "AabB"}  # the other two orders need two change points each


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_runs_before_somebody_waits(
    seed: int, stream: int, other: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    kernel(stream, "a")
    kernel(other, "b")
    assert seen == []
    synchronize(stream)
    assert "a" in seen


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_queue_runs_its_older_half(
    seed: int, stream: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    for number in range(1024):
        kernel(stream, str(number))
    assert seen == []
    kernel(stream, "1024")
    assert seen == [str(number) for number in range(512)]


# ---- Progress --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
def test_every_second_query_lets_one_item_run(
    seed: int, stream: int, other: int, event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    kernel(other, "first")
    record(event, other)
    wait_event(stream, event)
    kernel(stream, "second")
    record(event, stream)
    for ran in ([], ["first"], ["first"]):
        assert lib.orEventQuery(event) == NOT_READY
        assert seen == ran
    assert lib.orEventQuery(event) == 0
    assert seen == ["first", "second"]
    kernel(stream, "third")
    kernel(stream, "fourth")
    assert [is_pending(stream) for _ in range(4)] == [True, True, True, False]
    assert seen[2:] == ["third", "fourth"]


def test_a_peek_lets_nothing_run(
    late: None, stream: int, event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    kernel(stream, "kernel")
    record(event, stream)
    assert lib.orEventPeek(event) == NOT_READY
    assert seen == []
    synchronize(stream)
    assert lib.orEventPeek(event) == 0


def test_a_flush_lets_run_what_the_event_waits_for(
    late: None, stream: int, other: int, event: int, kernel: Callable[[int, str], None], seen: list[str]
) -> None:
    ran = threading.Event()
    launch(stream, ran.set)
    record(event, stream)
    kernel(other, "not needed")
    call("orEventFlush", event)
    assert ran.wait(600)
    synchronize(stream)
    assert seen == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_program_that_polls_goes_on_though_a_function_waits_for_the_program(
    seed: int, stream: int, other: int, event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    with Gate(stream):
        kernel(other, "kernel")
        record(event, other)
        while lib.orEventQuery(event) == NOT_READY:
            pass
        assert seen == ["kernel"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("launch_with", [launch, launch_host])
def test_a_program_that_waits_without_the_device_goes_on(
    seed: int, launch_with: Callable[..., None], stream: int, other: int
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    ran = threading.Barrier(2)
    launch(other, lambda: None)
    launch_with(stream, lambda: ran.wait(600))
    ran.wait(600)


@pytest.mark.slow
def test_a_program_that_reads_memory_in_a_loop_goes_on_after_a_while(late: None, stream: int) -> None:
    ran: list[int] = []
    launch(stream, lambda: ran.append(1))
    while not ran:
        pass


@pytest.mark.parametrize("seed", SEEDS)
def test_work_that_nobody_waits_for_runs_after_much_other_work(
    seed: int, stream: int, other: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    call("orSetExecutionMode", CHAOS, seed)
    kernel(other, "not needed")
    for _ in range(30_000):
        if seen:
            break
        launch(stream, lambda: None)
        synchronize(stream)
    assert seen == ["not needed"]


def test_the_completion_of_deferred_work_shows_when_somebody_waits(
    late: None, stream: int, other: int, event: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    begun = threading.Event()
    completion = 0

    def begin(_: int | None, given: int) -> None:
        nonlocal completion
        completion = given
        begun.set()

    kept.append(DeferredFn(begin))
    call("orLaunchDeferred", stream, kept[-1], None, None)
    record(event, stream)
    call("orEventFlush", event)
    assert begun.wait(600)
    kernel(other, "not needed")
    call("orCompletionSignal", completion, None)  # the flush still waits for it, and nothing else is needed
    assert lib.orEventPeek(event) == 0
    assert seen == []


def test_two_groups_of_deferred_work_begin_though_their_orders_differ(late: None, stream: int, other: int) -> None:
    """Two processes that launch two collectives in opposite orders: each collective needs that both have begun it."""
    completions: dict[tuple[str, int], int] = {}
    complete = threading.Condition()

    def collective(name: str, rank: int, handle: int) -> None:
        def begin(_: int | None, completion: int) -> None:
            with complete:
                completions[name, rank] = completion
                both = [completions.get((name, each)) for each in (0, 1)]
            for completion in both if all(both) else ():
                threading.Thread(target=lib.orCompletionSignal, args=(completion, None)).start()

        kept.append(DeferredFn(begin))
        call("orLaunchDeferred", handle, kept[-1], None, None)

    third, fourth = get_pointer("orStreamCreate"), get_pointer("orStreamCreate")
    collective("a", 0, stream)
    collective("b", 0, other)
    collective("b", 1, third)
    collective("a", 1, fourth)
    call("orDeviceSynchronize")
    assert len(completions) == 4
    call("orStreamDestroy", third)
    call("orStreamDestroy", fourth)


EXIT = r"""
#include <openreg_launch.h>
#include <cstdio>
#include <stdexcept>
int main() {
  orStream_t stream;
  orStreamCreate(&stream);
  orLaunchKernel(nullptr, [] { std::fputs("kernel\n", stderr); });
  orLaunchKernel(stream, [] { throw std::runtime_error("wrong"); });
  std::fputs("end of main\n", stderr);
}
"""


def test_queued_work_runs_at_exit_and_its_failure_is_written(tmp_path: Path) -> None:
    program = compile_program(cpp_compiler(), tmp_path, EXIT)
    assert run_program(program, OPENREG_EXECUTION="chaos").splitlines() == [
        "end of main",
        "kernel",
        "openreg: a function that was queued on a stream of device 0 ran at exit, and failed: wrong",
    ]


def test_a_kernel_of_the_host_waits_for_the_queued_work_of_its_stream(
    late: None, stream: int, seen: list[str], kernel: Callable[[int, str], None]
) -> None:
    import openreg_work

    kernel(stream, "queued")
    with openreg_work.kernel(stream):
        assert seen == ["queued"]


def test_functions_that_work_launches_run_when_they_are_needed(late: None, stream: int, other: int) -> None:
    seen: list[str] = []
    inner = callback(lambda: seen.append("inner"))
    launch(stream, lambda: call("orLaunch", other, inner, None, 0))
    synchronize(stream)
    assert seen == []
    synchronize(other)
    assert seen == ["inner"]


def test_the_devices_thread_sleeps_until_somebody_waits(late: None, stream: int) -> None:
    """In the other modes it looks for work every 50 us for 1 ms, so it sleeps about ten times for each kernel below."""
    launch(stream, lambda: None)
    synchronize(stream)
    threads = Path("/proc/self/task").iterdir()
    (thread,) = [each for each in threads if (each / "comm").read_text() == "openreg compute\n"]

    def sleeps() -> int:
        (line,) = re.findall(r"^voluntary_ctxt_switches:\s+(\d+)$", (thread / "status").read_text(), re.M)
        return int(line)

    before, kernels = sleeps(), 20
    for _ in range(kernels):
        launch(stream, lambda: None)
        synchronize(stream)
        time.sleep(0.002)
    # Once for each kernel. It may also sleep for the idle callback, and until a lock is free.
    assert sleeps() - before < 3 * kernels
