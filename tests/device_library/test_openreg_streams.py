"""Streams of openreg.h: CUDA's rules one by one, in each execution mode."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from openreg_c import (
    DEFAULT,
    INLINE,
    MAY_RUN_INLINE,
    HostFn,
    OpenRegError,
    attributes,
    call,
    get_int,
    get_pointer,
    lib,
    malloc,
)
from openreg_process import raises, run_python
from openreg_work import (
    NOT_READY,
    Gate,
    Waiter,
    callback,
    copy_async,
    is_pending,
    launch,
    launch_host,
    record,
    synchronize,
)

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- Handles ---------------------------------------------------------------------------------------------------------


def stream_int(name: str, handle: int | None) -> int:
    value = ctypes.c_int(-99)
    call(name, handle, ctypes.byref(value))
    return value.value


def test_stream_priorities_are_moved_into_the_range() -> None:
    least, greatest = ctypes.c_int(), ctypes.c_int()
    call("orDeviceGetStreamPriorityRange", ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (0, -3)
    call("orDeviceGetStreamPriorityRange", None, None)
    for asked, given in ((0, 0), (-1, -1), (-3, -3), (-100, -3), (5, 0)):
        handle = get_pointer("orStreamCreateWithPriority", 0, asked)
        assert stream_int("orStreamGetPriority", handle) == given
        call("orStreamDestroy", handle)
    assert stream_int("orStreamGetPriority", None) == 0


def test_a_stream_belongs_to_the_device_it_was_made_on() -> None:
    code = """
        call("orSetDevice", 1)
        stream = get_pointer("orStreamCreate")
        device = ctypes.c_int()
        call("orStreamGetDevice", None, ctypes.byref(device))
        print(device.value)
        call("orSetDevice", 0)
        call("orStreamGetDevice", stream, ctypes.byref(device))
        print(device.value)
        event = get_pointer("orEventCreate")
        call("orStreamGetDevice", get_pointer("orDeviceGetDefaultStream", 1), ctypes.byref(device))
        print(device.value)
        call("orStreamWaitEvent", stream, event, 0)  # of another device: waiting may
        call("orEventRecord", event, stream)  # recording may not
    """
    result = run_python(code)
    assert result.stdout.split() == ["1", "1", "1"]
    assert result.stderr.endswith(
        "OpenRegError: orErrorInvalidResourceHandle: orEventRecord: the event is of device 0, but the stream is of "
        "device 1; create the event while the stream's device is current\n"
    )


def test_a_new_stream_and_a_new_event_are_done(stream: int, event: int) -> None:
    for handle in (stream, None):
        call("orStreamQuery", handle)
        call("orStreamSynchronize", handle)
    call("orEventQuery", event)
    call("orEventSynchronize", event)
    call("orStreamWaitEvent", stream, event, 0)


def test_a_destroyed_handle_is_an_error_everywhere(stream: int, event: int, device_memory: int) -> None:
    gone = get_pointer("orStreamCreate")
    call("orStreamDestroy", gone)
    nothing = HostFn(lambda _: None)
    value = ctypes.c_int()
    for handle in (gone, 1, 0xDEADBEEF000, event):
        for name, arguments in (
            ("orStreamDestroy", (handle,)),
            ("orStreamQuery", (handle,)),
            ("orStreamSynchronize", (handle,)),
            ("orStreamGetPriority", (handle, ctypes.byref(value))),
            ("orStreamGetDevice", (handle, ctypes.byref(value))),
            ("orStreamWaitEvent", (handle, event, 0)),
            ("orEventRecord", (event, handle)),
            ("orLaunchHostFunc", (handle, nothing, None)),
            ("orLaunch", (handle, nothing, None, 0)),
            ("orMemcpyAsync", (device_memory, device_memory, 1, DEFAULT, handle)),
            ("orMemcpyWithStream", (device_memory, device_memory, 1, DEFAULT, handle)),
            ("orMemsetAsync", (device_memory, 0, 1, handle)),
        ):
            with raises(
                "orErrorInvalidResourceHandle",
                f"{name}: stream {handle:#x} does not exist; it was destroyed, or is no stream",
            ):
                call(name, *arguments)

    gone = get_pointer("orEventCreate")
    call("orEventDestroy", gone)
    milliseconds = ctypes.c_float()
    for dead, shown in ((gone, f"{gone:#x}"), (None, "(nil)"), (stream, f"{stream:#x}")):
        for name, event_arguments in (
            ("orEventDestroy", (dead,)),
            ("orEventQuery", (dead,)),
            ("orEventSynchronize", (dead,)),
            ("orEventRecord", (dead, stream)),
            ("orStreamWaitEvent", (stream, dead, 0)),
            ("orEventElapsedTime", (ctypes.byref(milliseconds), dead, event)),
            ("orEventElapsedTime", (ctypes.byref(milliseconds), event, dead)),
        ):
            with raises(
                "orErrorInvalidResourceHandle",
                f"{name}: event {shown} does not exist; it was destroyed, or is no event",
            ):
                call(name, *event_arguments)


def test_the_default_stream_has_a_handle_and_cannot_be_destroyed() -> None:
    handle = get_pointer("orDeviceGetDefaultStream", 0)
    assert handle == get_pointer("orDeviceGetDefaultStream", 0)
    assert (stream_int("orStreamGetDevice", handle), stream_int("orStreamGetPriority", handle)) == (0, 0)
    for default in (None, handle):
        message = "orStreamDestroy: a default or persistent stream cannot be destroyed"
        with raises("orErrorInvalidResourceHandle", message):
            call("orStreamDestroy", default)
    call("orStreamSynchronize", handle)


# ---- Order -----------------------------------------------------------------------------------------------------------


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
        while len(launched) < 1023:
            time.sleep(0.001)
        thread.join(0.1)
        assert len(launched) == 1023  # with the gate's function 1024 are pending
        assert is_pending(stream)  # no other call waits
    thread.join(600)
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
    synchronize(stream)  # the first call does not wait for work that is queued after it
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


# ---- Synchronising ---------------------------------------------------------------------------------------------------


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
        call("orStreamSynchronize", stream)  # the stream has no other work than this function
        call("orDeviceSynchronize")
        call("orFree", pointer)
        seen.append("done")

    launch(stream, function)
    synchronize(stream)
    assert seen == ["done"]
