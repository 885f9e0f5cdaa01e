"""Events of openreg.h: their times, and the streams and host threads that wait for them."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable

import pytest
from openreg_c import HostFn, call, get_pointer, lib
from openreg_process import raises
from openreg_work import NOT_READY, Gate, Waiter, is_pending, launch, launch_host, record, synchronize, wait_event

pytestmark = pytest.mark.usefixtures("clean_device")


def test_events_time_what_lies_between_them(stream: int, event: int) -> None:
    end = get_pointer("orEventCreateWithFlags", 1)
    pause = HostFn(lambda _: threading.Event().wait(0.02) and None)
    call("orEventRecord", event, stream)
    call("orLaunchHostFunc", stream, pause, None)
    call("orEventRecord", end, stream)
    call("orEventSynchronize", end)
    milliseconds = ctypes.c_float()
    call("orEventElapsedTime", ctypes.byref(milliseconds), event, end)
    assert 20 <= milliseconds.value < 60_000
    call("orEventRecord", event, stream)  # now the event marks this point
    call("orEventSynchronize", event)
    call("orEventElapsedTime", ctypes.byref(milliseconds), event, end)
    assert milliseconds.value <= 0
    call("orEventDestroy", end)


def test_elapsed_time_needs_two_recorded_events_with_timing(event: int) -> None:
    milliseconds = ctypes.c_float()
    with raises(
        "orErrorInvalidResourceHandle", "orEventElapsedTime: start was never recorded; call orEventRecord first"
    ):
        call("orEventElapsedTime", ctypes.byref(milliseconds), event, event)
    call("orEventRecord", event, None)
    untimed = get_pointer("orEventCreate")
    call("orEventRecord", untimed, None)
    with raises(
        "orErrorInvalidResourceHandle",
        "orEventElapsedTime: end was created without timing; create it with orEventCreateWithFlags(event, "
        "orEventEnableTiming)",
    ):
        call("orEventElapsedTime", ctypes.byref(milliseconds), event, untimed)
    call("orEventDestroy", untimed)


def test_elapsed_time_needs_two_events_of_one_device(event: int, make_stream: Callable[..., int]) -> None:
    call("orEventRecord", event, None)
    call("orSetDevice", 1)
    other = get_pointer("orEventCreateWithFlags", 1)
    call("orEventRecord", other, make_stream(1))
    call("orEventSynchronize", other)
    with raises(
        "orErrorInvalidResourceHandle",
        "orEventElapsedTime: start belongs to device 0, and end to device 1; record both events on one device",
    ):
        call("orEventElapsedTime", ctypes.byref(ctypes.c_float()), event, other)
    call("orEventDestroy", other)


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
        record(event, stream)  # pending, but the other stream does not wait for this record
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
        launch_host(stream, lambda: opened.wait(600))
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
    assert 50 <= milliseconds.value < 60_000
    call("orEventElapsedTime", ctypes.byref(milliseconds), start, end)
    assert 20 <= milliseconds.value < 60_000
    call("orEventElapsedTime", ctypes.byref(milliseconds), end, start)
    assert -60_000 < milliseconds.value <= -20
