"""Streams of the simulated device run asynchronously: CUDA's rules one by one, in each execution mode.

In orExecutionInline work runs within the call that launches it. A stream is kept busy by a thread that launches a
function which does not return (Gate): what other threads launch on that stream meanwhile is queued in every mode.
"""

from __future__ import annotations

import ctypes
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from openreg_c import (
    ASYNC,
    CHAOS,
    DEFAULT,
    DEVICE_TO_DEVICE,
    INLINE,
    MAY_RUN_INLINE,
    HostFn,
    OpenRegError,
    attributes,
    call,
    download,
    get_int,
    get_pointer,
    lib,
    malloc,
    memory_info,
    upload,
)
from openreg_process import compile_program, cpp_compiler, output_of, raises, run_program, run_python

MODES = {"inline": INLINE, "async": ASYNC, "chaos": CHAOS}
NOT_READY = 600
LAUNCH_FAILURE = 719
PAGE = 4096
MIB = 1 << 20

# Throws a C++ exception, as a failing kernel does: std::bad_alloc.
FAILS = ctypes.cast(ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv, HostFn)
FAILURE = (
    "a function launched earlier on a stream of device {} failed: std::bad_alloc. The device is usable; what the "
    "function should have written is not"
)

_callbacks: list[Any] = []  # a queued function must not be collected


def callback(function: Callable[[], object]) -> Any:
    result = HostFn(lambda _: function() and None)
    _callbacks.append(result)
    return result


def launch(stream: int | None, function: Callable[[], object], flags: int = 0) -> None:
    """Launches `function` as a kernel."""
    call("orLaunch", stream, callback(function), None, flags)


def launch_host(stream: int | None, function: Callable[[], object]) -> None:
    """Launches `function` as a host function."""
    call("orLaunchHostFunc", stream, callback(function), None)


class Gate:
    """Work that keeps a stream busy from here to the end of the `with` block or to `open()`."""

    def __init__(self, stream: int | None, launch_with: Callable[..., None] = launch_host) -> None:
        self._entered = threading.Event()
        self._opened = threading.Event()
        device = get_int("orGetDevice")

        def pass_through() -> None:
            self._entered.set()
            assert self._opened.wait(60)

        def launch_gate() -> None:
            call("orSetDevice", device)
            launch_with(stream, pass_through)

        self._thread = threading.Thread(target=launch_gate)
        self._thread.start()
        assert self._entered.wait(60)

    def open(self) -> None:
        self._opened.set()
        self._thread.join()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


class Waiter:
    """A call on a thread of its own, with the current device of this one."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self._error: BaseException | None = None
        device = get_int("orGetDevice")

        def work() -> None:
            try:
                call("orSetDevice", device)
                call(name, *arguments)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def waits(self) -> bool:
        """Whether it has not returned, after a time in which it would have."""
        self._thread.join(0.03)
        return self._thread.is_alive()

    def result(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    call("orSetDevice", 0)
    free, _ = memory_info()
    yield
    for device in (1, 0):
        call("orSetDevice", device)
        call("orDeviceSynchronize")
    call("orSetExecutionMode", INLINE, 0)
    assert memory_info()[0] == free
    _callbacks.clear()


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    call("orSetExecutionMode", MODES[request.param], 7)
    return request.param


@pytest.fixture(params=["async", "chaos"])
def queueing_mode(request: pytest.FixtureRequest) -> str:
    call("orSetExecutionMode", MODES[request.param], 7)
    return request.param


@pytest.fixture
def make_stream() -> Iterator[Callable[..., int]]:
    """Makes streams: of a device, with a priority."""
    made: list[int] = []

    def make(device: int = 0, priority: int = 0) -> int:
        call("orSetDevice", device)
        made.append(get_pointer("orStreamCreateWithPriority", 0, priority))
        call("orSetDevice", 0)
        return made[-1]

    yield make
    for handle in made:
        call("orStreamDestroy", handle)


@pytest.fixture
def stream(make_stream: Callable[..., int]) -> int:
    return make_stream()


@pytest.fixture
def other(make_stream: Callable[..., int]) -> int:
    return make_stream()


@pytest.fixture
def make_event() -> Iterator[Callable[..., int]]:
    """Makes events with timing, of a device."""
    made: list[int] = []

    def make(device: int = 0) -> int:
        call("orSetDevice", device)
        made.append(get_pointer("orEventCreateWithFlags", 1))
        call("orSetDevice", 0)
        return made[-1]

    yield make
    for handle in made:
        call("orEventDestroy", handle)


@pytest.fixture
def event(make_event: Callable[..., int]) -> int:
    return make_event()


@pytest.fixture
def device_memory() -> Iterator[int]:
    pointer = malloc(2 * PAGE)
    call("orMemset", pointer, 0, 2 * PAGE)
    yield pointer
    call("orFree", pointer)


@pytest.fixture
def pinned_memory() -> Iterator[int]:
    pointer = get_pointer("orMallocHost", 2 * PAGE)
    yield pointer
    call("orFreeHost", pointer)


def record(event: int, stream: int | None) -> None:
    call("orEventRecord", event, stream)


def wait_event(stream: int | None, event: int) -> None:
    call("orStreamWaitEvent", stream, event, 0)


def synchronize(stream: int | None) -> None:
    call("orStreamSynchronize", stream)


def is_pending(stream: int | None) -> bool:
    code: int = lib.orStreamQuery(stream)
    assert code in (0, NOT_READY)
    return code == NOT_READY


def copy_async(to: Any, start: Any, size: int, stream: int | None) -> None:
    call("orMemcpyAsync", to, start, size, DEFAULT, stream)


# ---- Order ---------------------------------------------------------------------------------------------------------


def test_a_streams_work_runs_in_order_whatever_runs_it(
    mode: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    seen: list[object] = []
    with Gate(stream):
        for number in range(20):
            launch(stream, lambda number=number: seen.append(number))
            call("orMemsetAsync", device_memory, number, 1, stream)
            launch_host(stream, lambda: seen.append("host"))
            copy_async(pinned_memory + number, device_memory, 1, stream)
            launch(stream, lambda: seen.append("small"), MAY_RUN_INLINE)
        assert seen == []
    synchronize(stream)
    assert seen == [item for number in range(20) for item in (number, "host", "small")]
    assert ctypes.string_at(pinned_memory, 20) == bytes(range(20))


def test_a_launch_behind_pending_work_returns_before_it_runs(mode: str, stream: int, event: int) -> None:
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(1))
        record(event, stream)
        assert is_pending(stream)
        assert lib.orEventQuery(event) == NOT_READY
        assert lib.orEventElapsedTime(ctypes.byref(ctypes.c_float()), event, event) == NOT_READY
        assert lib.orPeekAtLastError() != NOT_READY
        assert seen == []
    synchronize(stream)
    assert seen == [1]
    assert not is_pending(stream)
    call("orEventQuery", event)


def test_streams_do_not_wait_for_each_other(mode: str, stream: int, make_stream: Callable[..., int]) -> None:
    seen: list[str] = []
    with Gate(stream):
        for name, handle in (("other", make_stream()), ("default", None), ("peer", make_stream(1))):
            launch(handle, lambda name=name: seen.append(name))
            synchronize(handle)
    assert seen == ["other", "default", "peer"]


def test_several_host_threads_launch_on_one_stream(mode: str, stream: int) -> None:
    seen: list[tuple[int, int]] = []
    each = 200

    def work(thread: int) -> None:
        for number in range(each if mode != "chaos" else 10):
            launch(stream, lambda number=number: seen.append((thread, number)), number % 2)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    synchronize(stream)
    count = len(seen) // 4
    assert count in (each, 10)
    for number in range(4):
        assert [n for thread, n in seen if thread == number] == list(range(count))


def test_a_host_that_is_faster_than_the_device_waits_in_a_launch(mode: str, stream: int) -> None:
    function = callback(lambda: None)
    launched: list[int] = []

    def work() -> None:
        for number in range(1200):
            call("orLaunch", stream, function, None, 0)
            launched.append(number)

    thread = threading.Thread(target=work)
    with Gate(stream):
        thread.start()
        thread.join(0.1)
        assert len(launched) == 1023  # with the gate's function 1024 are pending
        assert is_pending(stream)  # no other call waits
    thread.join(60)
    assert len(launched) == 1200
    synchronize(stream)


def test_work_launched_by_work_of_the_same_stream_runs_after_it(mode: str, stream: int) -> None:
    seen: list[int] = []

    def outer() -> None:
        launch(stream, lambda: seen.append(2), MAY_RUN_INLINE)
        time.sleep(0.01)
        seen.append(1)

    launch(stream, outer)
    synchronize(stream)
    synchronize(stream)  # a stream is done when what its work launched is: that was queued later
    assert seen == [1, 2]


@pytest.mark.parametrize("launch_with", [launch, launch_host])
def test_work_runs_with_its_streams_device_current(
    mode: str, make_stream: Callable[..., int], launch_with: Callable[..., None]
) -> None:
    stream = make_stream(1)
    seen: list[int] = []
    launch_with(stream, lambda: seen.append(get_int("orGetDevice")))
    synchronize(stream)
    assert (seen, get_int("orGetDevice")) == ([1], 0)


# ---- Events --------------------------------------------------------------------------------------------------------


def test_a_stream_waits_for_an_event_of_another_stream_and_device(
    mode: str, stream: int, event: int, make_stream: Callable[..., int]
) -> None:
    waiting = make_stream(1)
    seen: list[str] = []
    with Gate(stream):
        launch(stream, lambda: seen.append("first"))
        record(event, stream)
        wait_event(waiting, event)
        launch(waiting, lambda: seen.append("second"))
        assert is_pending(waiting)
    synchronize(waiting)
    assert seen == ["first", "second"]


def test_a_wait_is_for_the_record_at_the_time_of_the_call(mode: str, stream: int, other: int, event: int) -> None:
    launch(stream, lambda: None)
    record(event, stream)
    with Gate(stream):
        wait_event(other, event)
        record(event, stream)  # pending, and none of the other stream's business
        seen: list[int] = []
        launch(other, lambda: seen.append(1))
        synchronize(other)
        assert seen == [1]
        assert lib.orEventQuery(event) == NOT_READY


def test_a_wait_outlives_its_event_and_the_stream_it_was_recorded_on(mode: str, stream: int) -> None:
    recorded_on = get_pointer("orStreamCreate")
    event = get_pointer("orEventCreate")
    seen: list[str] = []
    with Gate(recorded_on):
        launch(recorded_on, lambda: seen.append("first"))
        record(event, recorded_on)
        wait_event(stream, event)
        call("orEventDestroy", event)
        call("orStreamDestroy", recorded_on)
        launch(stream, lambda: seen.append("second"))
        assert is_pending(stream)
    synchronize(stream)
    assert seen == ["first", "second"]


def test_nothing_waits_for_an_event_that_was_never_recorded_or_that_its_own_stream_recorded(
    mode: str, stream: int, event: int
) -> None:
    wait_event(stream, event)
    assert not is_pending(stream)
    with Gate(stream):
        record(event, stream)
        wait_event(stream, event)
    synchronize(stream)


def test_a_long_chain_of_waits_unwinds(
    mode: str, make_stream: Callable[..., int], make_event: Callable[..., int]
) -> None:
    streams = [make_stream(number % 2) for number in range(500)]
    seen: list[int] = []
    with Gate(streams[0]):
        for number, handle in enumerate(streams[:-1]):
            event = make_event(number % 2)
            record(event, handle)
            wait_event(streams[number + 1], event)
        launch(streams[-1], lambda: seen.append(1))
        assert is_pending(streams[-1])
    synchronize(streams[-1])
    assert seen == [1]


def test_one_event_releases_many_streams(mode: str, stream: int, event: int, make_stream: Callable[..., int]) -> None:
    waiting = [make_stream() for _ in range(20)]
    seen: list[int] = []
    with Gate(stream):
        record(event, stream)
        for number, handle in enumerate(waiting):
            wait_event(handle, event)
            launch(handle, lambda number=number: seen.append(number))
        assert seen == []
    call("orDeviceSynchronize")
    assert sorted(seen) == list(range(20))


def test_synchronizing_an_event_waits_for_its_record_and_no_further(mode: str, stream: int, event: int) -> None:
    seen: list[int] = []
    with Gate(stream) as first:
        launch(stream, lambda: seen.append(1))
        record(event, stream)
        opened = threading.Event()
        launch_host(stream, lambda: opened.wait(60))
        waiter = Waiter("orEventSynchronize", event)
        assert waiter.waits()
        first.open()
        waiter.result()
        assert seen == [1]
        assert is_pending(stream)
        opened.set()
    synchronize(stream)


def test_events_tell_when_the_device_reached_them(mode: str, stream: int, make_event: Callable[..., int]) -> None:
    before, start, end = make_event(), make_event(), make_event()
    record(before, stream)
    with Gate(stream):
        record(start, stream)
        launch(stream, lambda: time.sleep(0.02))
        record(end, stream)
        time.sleep(0.05)
    call("orEventSynchronize", end)
    milliseconds = ctypes.c_float()
    call("orEventElapsedTime", ctypes.byref(milliseconds), before, start)
    assert 50 <= milliseconds.value < 5000
    call("orEventElapsedTime", ctypes.byref(milliseconds), start, end)
    assert 20 <= milliseconds.value < 5000
    call("orEventElapsedTime", ctypes.byref(milliseconds), end, start)
    assert -5000 < milliseconds.value <= -20


# ---- Synchronising -------------------------------------------------------------------------------------------------


def test_each_synchronising_call_waits_for_its_own_level(
    mode: str, stream: int, other: int, event: int, make_stream: Callable[..., int]
) -> None:
    with Gate(stream):
        record(event, stream)
        calls = [
            Waiter("orStreamSynchronize", stream),
            Waiter("orEventSynchronize", event),
            Waiter("orDeviceSynchronize"),
        ]
        assert all(waiter.waits() for waiter in calls)
        synchronize(other)
        synchronize(None)
        call("orSetDevice", 1)
        call("orDeviceSynchronize")
    for waiter in calls:
        waiter.result()


def test_a_destroyed_stream_finishes_its_work(mode: str) -> None:
    stream = get_pointer("orStreamCreate")
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(1))
        call("orStreamDestroy", stream)
        with raises(
            "orErrorInvalidResourceHandle",
            f"orStreamQuery: stream {stream:#x} does not exist; it was destroyed, or is no stream",
        ):
            call("orStreamQuery", stream)
        waiter = Waiter("orDeviceSynchronize")
        assert waiter.waits()
        assert seen == []
    waiter.result()
    assert seen == [1]


@pytest.mark.parametrize("give_back", ["orFree", "orFreeHost", "orMemoryUnprotect"])
def test_freeing_and_unprotecting_wait_for_all_devices(
    mode: str, make_stream: Callable[..., int], give_back: str
) -> None:
    pointer = get_pointer("orMallocHost", 8) if give_back == "orFreeHost" else malloc(8)
    with Gate(make_stream(1)):
        waiter = Waiter(give_back, pointer)
        assert waiter.waits()
        assert attributes(pointer).size == 8
    waiter.result()
    if give_back == "orMemoryUnprotect":
        call("orFree", pointer)


def test_waiting_for_a_stream_ends_though_others_go_on_launching(mode: str, stream: int) -> None:
    stop = threading.Event()

    def keep_busy() -> None:
        while not stop.is_set():
            launch(stream, lambda: None)
            time.sleep(0.002)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        for _ in range(20):
            synchronize(stream)
            call("orDeviceSynchronize")
    finally:
        stop.set()
        thread.join()


WAITS = "it would have to wait for queued work, which may be waiting for that function; call it on a thread of the host"


def test_work_may_not_wait_for_queued_work(mode: str, stream: int, other: int, device_memory: int) -> None:
    errors: list[str] = []

    def attempt(name: str, *arguments: Any) -> None:
        try:
            call(name, *arguments)
            errors.append("success")
        except OpenRegError as error:
            errors.append(str(error))

    def function() -> None:
        launch(stream, lambda: None)
        attempt("orStreamSynchronize", stream)
        attempt("orStreamSynchronize", other)
        attempt("orDeviceSynchronize")
        attempt("orFree", device_memory)
        attempt("orMemcpyAsync", ctypes.create_string_buffer(1), device_memory, 1, DEFAULT, stream)
        attempt("orSetExecutionMode", INLINE, 0)

    with Gate(other, launch_host if mode != "inline" else launch):
        launch(stream, function)
        synchronize(stream)
    called = ("orStreamSynchronize", "orStreamSynchronize", "orDeviceSynchronize", "orFree", "orMemcpyAsync")
    assert errors == [
        f"orErrorNotPermitted: {name}: called inside a function that a stream runs, {WAITS}"
        for name in (*called, "orSetExecutionMode")
    ]


def test_work_may_call_what_need_not_wait(mode: str, stream: int, other: int) -> None:
    seen: list[object] = []

    def function() -> None:
        pointer = malloc(8)
        call("orStreamSynchronize", other)
        call("orStreamSynchronize", stream)  # but for this function there is nothing
        call("orDeviceSynchronize")
        call("orFree", pointer)
        seen.append("done")

    launch(stream, function)
    synchronize(stream)
    assert seen == ["done"]


# ---- Copies --------------------------------------------------------------------------------------------------------


def test_a_copy_from_pageable_memory_has_read_its_source_when_the_call_returns(
    mode: str, stream: int, device_memory: int
) -> None:
    source = ctypes.create_string_buffer(b"first")
    copy_async(device_memory, source, 5, stream)
    source.raw = b"second"
    synchronize(stream)
    assert download(device_memory, 5) == b"first"
    with Gate(stream):
        copy_async(device_memory + 8, source, 6, stream)
        source.raw = b"third!"
    synchronize(stream)
    assert download(device_memory + 8, 6) == b"second"


def test_a_copy_from_pageable_memory_waits_when_64_mib_are_queued(mode: str, stream: int) -> None:
    pointer = malloc(64 * MIB)
    source = ctypes.create_string_buffer(64 * MIB)
    with Gate(stream):
        copy_async(pointer, source, 63 * MIB, stream)
        source[0] = b"x"
        waiter = Waiter("orMemcpyAsync", pointer, source, 2 * MIB, DEFAULT, stream)
        assert waiter.waits()
    waiter.result()
    assert download(pointer, 2) == b"x\0"
    with Gate(stream):  # what was queued has run, and counts no longer
        copy_async(pointer, source, 64 * MIB, stream)
    synchronize(stream)
    call("orFree", pointer)


def test_a_copy_from_pinned_memory_reads_its_source_later(
    mode: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    ctypes.memmove(pinned_memory, b"first", 5)
    with Gate(stream):
        copy_async(device_memory, pinned_memory, 5, stream)
        ctypes.memmove(pinned_memory, b"later", 5)
    synchronize(stream)
    assert download(device_memory, 5) == b"later"


def test_a_copy_to_pageable_memory_has_written_it_when_the_call_returns(
    mode: str, stream: int, device_memory: int
) -> None:
    destination = ctypes.create_string_buffer(4)
    with Gate(stream):
        call("orMemsetAsync", device_memory, 7, 4, stream)
        waiter = Waiter("orMemcpyAsync", destination, device_memory, 4, DEFAULT, stream)
        assert waiter.waits()
    waiter.result()
    assert destination.raw == b"\7\7\7\7"


def test_a_copy_to_pinned_memory_is_not_finished_when_the_call_returns(
    mode: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    upload(device_memory, b"data")
    ctypes.memset(pinned_memory, 0, 4)
    with Gate(stream):
        copy_async(pinned_memory, device_memory, 4, stream)
        assert ctypes.string_at(pinned_memory, 4) == b"\0\0\0\0"
    synchronize(stream)
    assert ctypes.string_at(pinned_memory, 4) == b"data"


def test_copies_between_devices_are_queued(mode: str, stream: int, device_memory: int) -> None:
    call("orSetDevice", 1)
    peer = malloc(4)
    call("orSetDevice", 0)
    upload(device_memory, b"peer")
    with Gate(stream):
        call("orMemcpyAsync", peer, device_memory, 4, DEVICE_TO_DEVICE, stream)
        call("orMemsetAsync", device_memory, 0, 4, stream)
    synchronize(stream)
    assert download(peer, 4) == b"peer"
    call("orFree", peer)


@pytest.mark.parametrize("name", ["orMemcpy", "orMemset"])
def test_a_synchronous_copy_waits_for_the_default_stream_and_no_other(
    mode: str, stream: int, device_memory: int, name: str
) -> None:
    arguments = (device_memory, device_memory + 8, 4, DEFAULT) if name == "orMemcpy" else (device_memory, 1, 4)
    with Gate(stream):
        call(name, *arguments)
    with Gate(None):
        waiter = Waiter(name, *arguments)
        assert waiter.waits()
    waiter.result()


def test_a_blocking_copy_on_a_stream_waits_for_that_stream_and_reports_its_failure(
    mode: str, stream: int, other: int, device_memory: int, pinned_memory: int
) -> None:
    arguments = (pinned_memory, device_memory, 4, DEFAULT, stream)
    with Gate(other):
        call("orMemcpyWithStream", *arguments)
    with Gate(stream):
        call("orMemsetAsync", device_memory, 9, 4, stream)
        waiter = Waiter("orMemcpyWithStream", *arguments)
        assert waiter.waits()
    waiter.result()
    assert ctypes.string_at(pinned_memory, 4) == b"\x09\x09\x09\x09"
    call("orLaunch", stream, FAILS, None, 0)
    with raises("orErrorLaunchFailure", f"orMemcpyWithStream: {FAILURE.format(0)}"):
        call("orMemcpyWithStream", *arguments)


def test_a_bad_copy_fails_at_the_call(mode: str, stream: int, device_memory: int) -> None:
    with Gate(stream), pytest.raises(OpenRegError, match="leave its allocation"):
        copy_async(device_memory, device_memory + PAGE, 2 * PAGE, stream)
    synchronize(stream)


# ---- Failures ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch_name", ["orLaunch", "orLaunchHostFunc"])
@pytest.mark.parametrize("wait_with", ["orStreamSynchronize", "orEventSynchronize", "orDeviceSynchronize"])
def test_a_failure_is_reported_once_by_the_next_call_that_waits(
    mode: str, stream: int, other: int, event: int, launch_name: str, wait_with: str
) -> None:
    seen: list[int] = []
    arguments = {"orStreamSynchronize": (stream,), "orEventSynchronize": (event,)}.get(wait_with, ())
    call(launch_name, stream, FAILS, None, *(0,) * (launch_name == "orLaunch"))
    launch(stream, lambda: seen.append(1))
    record(event, stream)
    while is_pending(stream):  # asking reports nothing
        time.sleep(0.001)
    call("orEventQuery", event)
    synchronize(other)
    with raises("orErrorLaunchFailure", f"{wait_with}: {FAILURE.format(0)}"):
        call(wait_with, *arguments)
    assert seen == [1]
    call(wait_with, *arguments)


def test_of_several_failures_the_first_of_each_stream_is_kept(mode: str, make_stream: Callable[..., int]) -> None:
    streams = [make_stream(), make_stream(), make_stream(1)]
    for _ in range(3):
        for handle in streams:
            call("orLaunch", handle, FAILS, None, 0)
    codes = []
    for device in (0, 1):
        call("orSetDevice", device)
        codes += [lib.orDeviceSynchronize() for _ in range(3)]
    assert codes == [LAUNCH_FAILURE, LAUNCH_FAILURE, 0, LAUNCH_FAILURE, 0, 0]


def test_a_destroyed_streams_failure_is_the_devices(mode: str, make_stream: Callable[..., int]) -> None:
    call("orSetDevice", 1)
    stream = get_pointer("orStreamCreate")
    call("orLaunch", stream, FAILS, None, 0)
    call("orStreamDestroy", stream)
    with raises("orErrorLaunchFailure", f"orDeviceSynchronize: {FAILURE.format(1)}"):
        call("orDeviceSynchronize")


def test_a_synchronous_copy_reports_a_failure_after_copying(mode: str, device_memory: int) -> None:
    call("orLaunch", None, FAILS, None, 0)
    with raises("orErrorLaunchFailure", f"orMemcpy: {FAILURE.format(0)}"):
        upload(device_memory, b"done")
    assert download(device_memory, 4) == b"done"


# ---- Who runs what -------------------------------------------------------------------------------------------------


def thread_of(launch_with: Callable[..., None], stream: int | None, *flags: int) -> int:
    seen: list[int] = []
    launch_with(stream, lambda: seen.append(threading.get_native_id()), *flags)
    synchronize(stream)
    return seen[0]


def name_of_thread(thread: int) -> str:
    return Path(f"/proc/self/task/{thread}/comm").read_text().strip()


def test_one_thread_runs_the_kernels_of_all_streams_and_devices(
    queueing_mode: str, make_stream: Callable[..., int]
) -> None:
    streams = [None, *(make_stream(number % 2, -(number % 4)) for number in range(8))]
    threads = {thread_of(launch, handle) for handle in streams}
    assert [name_of_thread(thread) for thread in threads] == ["openreg compute"]
    host_threads = {thread_of(launch_host, handle) for handle in streams}
    assert [name_of_thread(thread) for thread in host_threads] == ["openreg host"]


def test_inline_everything_runs_on_the_thread_that_launches(stream: int) -> None:
    assert {thread_of(launch, stream), thread_of(launch_host, None)} == {threading.get_native_id()}


def test_inline_what_is_queued_runs_on_the_devices_threads(stream: int) -> None:
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(threading.get_native_id()))
    synchronize(stream)
    assert name_of_thread(seen[0]) == "openreg compute"


def test_a_small_kernel_runs_inline_on_an_idle_stream_in_async_mode_only(stream: int) -> None:
    main = threading.get_native_id()
    for execution in MODES.values():
        call("orSetExecutionMode", execution, 0)
        assert (thread_of(launch, stream, MAY_RUN_INLINE) == main) == (execution != CHAOS)
    call("orSetExecutionMode", ASYNC, 0)
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(threading.get_native_id()), MAY_RUN_INLINE)
        assert seen == []
    synchronize(stream)
    assert seen != [main]


def test_copies_and_host_functions_overlap_kernels(
    queueing_mode: str, stream: int, other: int, device_memory: int, pinned_memory: int
) -> None:
    seen: list[int] = []
    with Gate(stream, launch):
        copy_async(pinned_memory, device_memory, PAGE, other)
        copy_async(device_memory, pinned_memory, PAGE, other)
        launch_host(other, lambda: seen.append(1))
        synchronize(other)
        assert seen == [1]
        launch(other, lambda: seen.append(2))  # but there is one thread for kernels
        assert is_pending(other)
        time.sleep(0.01)
        assert seen == [1]
    synchronize(other)
    assert seen == [1, 2]


@pytest.mark.parametrize("execution", ["inline", "async"])  # in chaos streams take turns at random
def test_the_stream_of_highest_priority_comes_first(
    execution: str, stream: int, event: int, make_stream: Callable[..., int]
) -> None:
    call("orSetExecutionMode", MODES[execution], 0)
    priorities = [0, -2, -1, -3, 0, -2]
    streams = [make_stream(number % 2, priority) for number, priority in enumerate(priorities)]
    seen: list[int] = []
    with Gate(stream):
        record(event, stream)
        for handle, priority in zip(streams, priorities, strict=True):
            wait_event(handle, event)
            launch(handle, lambda priority=priority: seen.append(priority))
    for handle in streams:
        synchronize(handle)
    assert seen == sorted(priorities)


# In a process of its own: the callback is the process's, and PyTorch has had one since the first launch.
@pytest.mark.parametrize("mode", [ASYNC, CHAOS], ids=["async", "chaos"])
def test_the_idle_callback_is_called_on_the_compute_thread_when_it_has_nothing_to_do(mode: int) -> None:
    code = f"""
    import threading, time
    from test_openreg_streams import Gate, callback, launch, name_of_thread, synchronize
    call("orSetExecutionMode", {mode}, 7)
    calls = []
    called = threading.Event()

    def idle():
        calls.append(name_of_thread(threading.get_native_id()))
        called.set()

    call("orSetIdleCallback", callback(idle), None, 1000)
    time.sleep(0.01)
    assert calls == []
    for expected in (1, 2):
        called.clear()
        with Gate(None, launch):
            launch(None, lambda: None)
            time.sleep(0.01)
            assert len(calls) == expected - 1  # it is busy, however long
        synchronize(None)
        assert called.wait(60)
        time.sleep(0.01)
        assert calls == ["openreg compute"] * expected  # once
    call("orSetIdleCallback", HostFn(), None, 0)
    launch(None, lambda: None)
    synchronize(None)
    time.sleep(0.01)
    print(len(calls))
    """
    assert output_of(code) == "2"


def test_threads_start_with_the_first_work_and_cost_nothing_at_rest() -> None:
    code = """
        import threading, time
        stream, event = get_pointer("orStreamCreate"), get_pointer("orEventCreate")
        pointer, pinned = malloc(8), get_pointer("orMallocHost", 8)
        def names():
            tasks = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
            return sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks)
        call("orEventRecord", event, stream), call("orStreamWaitEvent", None, event, 0)
        call("orMemcpy", pointer, pinned, 8, DEFAULT), call("orDeviceSynchronize")
        nothing = HostFn(lambda _: None)
        call("orLaunch", stream, nothing, None, MAY_RUN_INLINE)
        print(names())
        call("orLaunch", stream, nothing, None, 0), call("orDeviceSynchronize")
        print(names())
        call("orMemcpyAsync", pointer, pinned, 8, DEFAULT, stream), call("orDeviceSynchronize")
        print(names())
        call("orLaunchHostFunc", stream, nothing, None), call("orDeviceSynchronize")
        print(names())
        before = time.process_time()
        time.sleep(0.5)
        print(time.process_time() - before < 0.01)
    """
    assert output_of(code, OPENREG_EXECUTION="async").splitlines() == [
        "[]",
        "['openreg compute']",
        "['openreg compute', 'openreg copy']",
        "['openreg compute', 'openreg copy', 'openreg host']",
        "True",
    ]


@pytest.mark.parametrize("pause", [0, 0.0001, 0.002])  # at once, while the thread naps, when it sleeps
@pytest.mark.parametrize("launch_with", [launch, launch_host])
def test_work_that_nobody_waits_for_runs_though_its_thread_was_idle(
    queueing_mode: str, stream: int, launch_with: Callable[..., None], pause: float
) -> None:
    for _ in range(20):
        ran = threading.Event()
        launch_with(stream, ran.set)
        assert ran.wait(60)
        time.sleep(pause)


def test_signals_are_left_to_the_hosts_threads() -> None:
    code = """
        import signal
        nothing = HostFn(lambda _: None)
        call("orLaunch", None, nothing, None, 0), call("orDeviceSynchronize")
        for task in os.listdir("/proc/self/task"):
            if int(task) != os.getpid():
                lines = open(f"/proc/self/task/{task}/status").read().splitlines()
                mask = int(next(line.split()[1] for line in lines if line.startswith("SigBlk")), 16)
                print(*(bool(mask >> (s - 1) & 1) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV)))
    """
    assert output_of(code, OPENREG_EXECUTION="async") == "True True False"


def test_a_system_that_refuses_a_thread_is_an_error_and_later_work_runs() -> None:
    code = """
        import resource
        stream = get_pointer("orStreamCreate")
        seen = []
        function = HostFn(seen.append)
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
        try:
            call("orLaunch", stream, function, 1, 0)
        except OpenRegError as error:
            print(error)
        call("orStreamQuery", stream)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        call("orLaunch", stream, function, 2, 0)
        call("orStreamSynchronize", stream)
        print(seen)
    """
    assert output_of(code, OPENREG_EXECUTION="async").splitlines() == [
        "orErrorOperatingSystem: orLaunch: cannot start a thread to run queued work: Resource temporarily unavailable. "
        "Free memory, or raise the limit on processes (ulimit -u)",
        "[2]",
    ]


# ---- Modes ---------------------------------------------------------------------------------------------------------


def execution_mode() -> tuple[int, int]:
    seed = ctypes.c_uint64()
    return get_int("orGetExecutionMode", ctypes.byref(seed)), seed.value


def test_the_mode_comes_from_the_environment() -> None:
    code = """
        seed = ctypes.c_uint64()
        print(get_int("orGetExecutionMode", ctypes.byref(seed)), seed.value)
        call("orGetExecutionMode", None, None)
    """
    assert output_of(code) == "0 0"
    assert output_of(code, OPENREG_EXECUTION="async") == "1 0"
    assert output_of(code, OPENREG_EXECUTION="chaos", OPENREG_CHAOS_SEED=str(2**64 - 1)) == f"2 {2**64 - 1}"


def test_who_asks_whether_kernels_run_inline_starts_nothing() -> None:
    code = """
        import os
        print(lib.orExecutesInline())
        call("orDeviceSynchronize")
        print(lib.orExecutesInline())
        pid = os.fork()
        if pid == 0:
            os._exit(10 + lib.orExecutesInline())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert output_of(code).split() == ["False", "True", "10"]
    assert output_of(code, OPENREG_EXECUTION="async").split() == ["False", "False", "10"]


def test_switching_the_mode_waits_and_leaves_failures(mode: str, stream: int) -> None:
    with Gate(stream):
        call("orLaunch", stream, FAILS, None, 0)
        waiter = Waiter("orSetExecutionMode", CHAOS, 5)
        assert waiter.waits()
        assert execution_mode() == (MODES[mode], 7)
    waiter.result()
    assert execution_mode() == (CHAOS, 5)
    with raises("orErrorLaunchFailure", f"orStreamSynchronize: {FAILURE.format(0)}"):
        synchronize(stream)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_mode_that_does_not_exist_is_an_error(number: int) -> None:
    with raises("orErrorInvalidValue", f"orSetExecutionMode: mode is {number}, which is no orExecutionMode (0 to 2)"):
        call("orSetExecutionMode", number, 0)
    assert execution_mode() == (INLINE, 0)


def test_chaos_shows_a_host_that_reads_before_the_copy_has_retired(
    stream: int, device_memory: int, pinned_memory: int
) -> None:
    call("orSetExecutionMode", CHAOS, 1)
    upload(device_memory, b"right")
    seen = set()
    for _ in range(100):
        ctypes.memmove(pinned_memory, b"stale", 5)
        copy_async(pinned_memory, device_memory, 5, stream)
        while is_pending(stream):
            seen.add(ctypes.string_at(pinned_memory, 5))
        assert ctypes.string_at(pinned_memory, 5) == b"right"
    assert b"\xff\xff\xff\xff\xff" in seen
    assert b"stale" not in seen  # what a test with a destination of zeros would take for right


def test_chaos_shows_a_missing_wait_between_streams(stream: int, other: int, device_memory: int) -> None:
    def read_without_waiting(execution: int) -> set[bytes]:
        call("orSetExecutionMode", execution, 3)
        seen = set()
        for _ in range(50):
            call("orMemset", device_memory, 0, 1)
            call("orMemsetAsync", device_memory, 1, 1, stream)
            call("orMemcpyAsync", device_memory + 1, device_memory, 1, DEFAULT, other)
            call("orDeviceSynchronize")
            seen.add(download(device_memory + 1, 1))
        return seen

    assert read_without_waiting(INLINE) == {b"\1"}
    assert read_without_waiting(CHAOS) == {b"\0", b"\1"}


def test_chaos_is_right_for_copies_that_overlap_themselves(stream: int, device_memory: int) -> None:
    call("orSetExecutionMode", CHAOS, 0)
    for offset, expected in ((0, b"abcdefef"), (2, b"..abcdef"), (4, b"..ababcdef")):
        upload(device_memory, b"..abcdef")
        copy_async(device_memory + offset, device_memory + 2, 6, stream)
        synchronize(stream)
        assert download(device_memory, len(expected)) == expected


# ---- Forks, ends of threads and of the process ---------------------------------------------------------------------

QUEUE_MUCH = """
    import faulthandler, sys, threading, time
    stream = get_pointer("orStreamCreate")
    pointer, pinned = malloc(1 << 20), get_pointer("orMallocHost", 1 << 20)
    slow = HostFn(lambda _: time.sleep(0.05))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(slow))  # queued work must outlive this module
    threading.Thread(target=call, args=("orLaunchHostFunc", stream, slow, None), daemon=True).start()
    time.sleep(0.02)
    for number in range(50):
        call("orLaunchHostFunc", stream, slow, None)
        call("orMemcpyAsync", pinned, pointer, 1 << 20, DEFAULT, stream)
        call("orMemcpyAsync", pointer, b"x" * 100, 100, DEFAULT, stream)
        call("orMemsetAsync", pointer, 1, 1 << 20, None)
    event = get_pointer("orEventCreate")
    call("orEventRecord", event, stream)
    call("orStreamWaitEvent", None, event, 0)
    call("orMemsetAsync", pointer, 1, 1 << 20, None)
"""


@pytest.mark.parametrize("execution", MODES)
def test_a_child_forked_while_work_is_queued_is_told_to_spawn_and_ends(execution: str) -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of just this
        pid = os.fork()
        if pid == 0:
            for name, *arguments in ("orStreamSynchronize", stream), ("orEventQuery", event), ("orDeviceSynchronize",):
                print(getattr(lib, name)(*arguments), lib.orGetLastErrorMessage() == BAD_FORK)
            call("orStreamDestroy", stream), call("orEventDestroy", event)
            call("orFree", pointer), call("orFreeHost", pinned)
            sys.exit(0)  # through the exit handlers
        print("child", os.waitpid(pid, 0)[1])
        print("parent", lib.orEventQuery(event))
    """
    bad_fork = (
        b"Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the "
        b"'spawn' start method"
    )
    output = output_of(
        f"BAD_FORK = {bad_fork!r}\n" + textwrap.dedent(QUEUE_MUCH) + textwrap.dedent(code), OPENREG_EXECUTION=execution
    )
    assert output.splitlines() == ["3 True"] * 3 + ["child 0", f"parent {NOT_READY}"]


@pytest.mark.parametrize("execution", MODES)
def test_a_process_that_exits_with_work_queued_ends_at_once(execution: str) -> None:
    started = time.monotonic()
    result = run_python(QUEUE_MUCH, OPENREG_EXECUTION=execution)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert time.monotonic() - started < 2  # all of it would take 2.5 s


EXIT = r"""
#include <openreg_launch.h>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
std::atomic<bool> started, finished, ranLater;
std::thread::id mainThread = std::this_thread::get_id();
orStream_t stream;
struct Last {
  ~Last() {
    bool inlineNow = false;
    orError_t launched = orLaunchKernel(stream, [&] { inlineNow = std::this_thread::get_id() == mainThread; });
    orError_t waited = orDeviceSynchronize();
    std::printf("finished %d, later %d, inline %d, errors %d %d\n", +finished, +ranLater, inlineNow, launched, waited);
  }
} last;
int main() {
  orStreamCreate(&stream);
  orLaunchKernel(stream, [] {
    started = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    finished = true;
  });
  orLaunchKernel(stream, [] { ranLater = true; });
  while (!started) std::this_thread::yield();
  std::exit(0);
}
"""


@pytest.mark.parametrize("execution", ["async", "chaos"])
def test_what_runs_at_exit_is_finished_and_what_is_queued_abandoned(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, EXIT)
    output = run_program(program, OPENREG_EXECUTION=execution)
    assert output == "finished 1, later 0, inline 1, errors 0 0\n"


EXIT_INSIDE = r"""
#include <openreg_launch.h>
#include <cstdlib>
int main() {
  orLaunchKernel(nullptr, [] { std::exit(0); });
  orDeviceSynchronize();
  for (;;) {}
}
"""


@pytest.mark.parametrize("execution", MODES)
def test_a_kernel_that_ends_the_process_does_not_wait_for_itself(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, EXIT_INSIDE)
    started = time.monotonic()
    assert run_program(program, OPENREG_EXECUTION=execution) == ""
    assert time.monotonic() - started < 5


END_OF_THREAD = r"""
#include <openreg_launch.h>
#include <pthread.h>
#include <cstdio>
int main() {
  orStream_t stream;
  orStreamCreate(&stream);
  int ran = 0;
  for (int i = 0; i < 3; ++i) {
    orLaunchHostFunc(stream, [](void*) { pthread_exit(nullptr); }, nullptr);
    orLaunchHostFunc(stream, [](void* data) { ++*static_cast<int*>(data); }, &ran);
  }
  const orError_t error = orStreamSynchronize(stream);
  std::printf("%d %d\n", error, ran);
}
"""


@pytest.mark.parametrize("execution", ["async", "chaos"])
def test_work_goes_on_after_a_function_that_ends_its_thread(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, END_OF_THREAD)
    assert run_program(program, OPENREG_EXECUTION=execution) == "0 3\n"
