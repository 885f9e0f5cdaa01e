"""Streams and events through PyTorch's generic interface and the device module, with CUDA's semantics.

Nothing here depends on whether the streams run at once or later.
"""

from __future__ import annotations

import threading
import time

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")


def busy(stream: torch.Stream | None = None) -> torch.Tensor:
    """Queues a little work on a stream and returns its result, 512 everywhere."""
    with MODULE.stream(stream):
        a = torch.ones(256, 256, device=DEVICE)
        for _ in range(3):
            a = (a @ a).clamp(max=2)
        return a @ a / 2


def is_current(stream: torch.Stream) -> bool:
    """A torch.cuda.Stream equals no torch.Stream, not even that of its queue (torch/cuda/streams.py, Stream.__eq__)."""
    current = MODULE.current_stream()
    return (current.device, current.stream_id) == (stream.device, stream.stream_id)


def test_the_default_stream_is_current_at_first() -> None:
    for index in range(MODULE.device_count()):
        assert MODULE.current_stream(index) == MODULE.default_stream(index)
        assert MODULE.current_stream(index).stream_id == torch.accelerator.current_stream(index).stream_id
        assert MODULE.current_stream(index).device == torch.device(DEVICE, index)


def test_a_new_stream_is_another_one_and_idle() -> None:
    first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)
    assert first != second
    assert first != MODULE.default_stream()
    assert first.query()
    first.synchronize()
    assert (first.device, first.device_type) == (torch.device(DEVICE_0), second.device_type)


@TWO_DEVICES
def test_a_stream_belongs_to_the_device_it_was_made_on() -> None:
    assert torch.Stream(DEVICE_1).device == torch.device(DEVICE_1)
    assert torch.Stream(1).device == torch.device(DEVICE_1)
    with MODULE.device(1):
        assert torch.Stream().device == torch.device(DEVICE_1)


def test_streams_hash_and_compare_by_what_they_are() -> None:
    stream = torch.Stream(DEVICE)
    same = torch.Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
    assert stream == same
    assert hash(stream) == hash(same)
    assert len({stream, same, torch.Stream(DEVICE)}) == 2


def test_a_stream_can_have_a_priority() -> None:
    # A number outside of the range is moved into the range, as on CUDA.
    for priority in (0, -1, -(2**31), 1, 2**31 - 1):
        assert torch.Stream(DEVICE, priority=priority).query()


def test_the_stream_context_sets_and_restores_the_current_stream() -> None:
    stream, inner, before = MODULE.Stream(), MODULE.Stream(), MODULE.current_stream()
    with MODULE.stream(stream):
        assert MODULE.current_stream() == stream
        with MODULE.stream(inner):
            assert is_current(inner)
            assert torch.accelerator.current_stream().stream_id == inner.stream_id
        with MODULE.stream(None):
            assert MODULE.current_stream() == stream
        assert MODULE.current_stream() == stream
    assert MODULE.current_stream() == before


def test_a_stream_is_a_context_manager() -> None:
    stream, before = torch.Stream(DEVICE), MODULE.current_stream()
    with stream:
        assert is_current(stream)
    assert MODULE.current_stream() == before


def test_the_context_is_restored_when_an_error_leaves_it() -> None:
    before = MODULE.current_stream()
    with pytest.raises(KeyError), MODULE.stream(MODULE.Stream()):
        raise KeyError
    assert MODULE.current_stream() == before


@TWO_DEVICES
def test_the_stream_of_another_device_makes_that_device_current() -> None:
    first, stream, generic = MODULE.current_stream(0), MODULE.Stream(device=1), torch.Stream(device=1)
    for context, chosen in ((MODULE.stream(stream), stream), (generic, generic)):
        with context:
            assert MODULE.current_device() == torch.accelerator.current_device_index() == 1
            assert is_current(chosen)
            assert MODULE.current_stream(0) == first
            assert torch.ones(1, device=DEVICE).device == torch.device(DEVICE_1)
        assert MODULE.current_device() == 0
        assert MODULE.current_stream(1) == MODULE.default_stream(1)


def test_set_stream_lasts() -> None:
    stream, before = torch.Stream(DEVICE), torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        assert is_current(stream)
        assert_same(busy(), torch.full((256, 256), 512.0))
    finally:
        torch.accelerator.set_stream(before)
    assert is_current(before)


def test_the_current_stream_belongs_to_the_thread() -> None:
    seen: list[bool] = []
    with MODULE.stream(MODULE.Stream()):
        thread = threading.Thread(target=lambda: seen.append(MODULE.current_stream() == MODULE.default_stream()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_work_on_a_stream_is_there_after_synchronize() -> None:
    stream = torch.Stream(DEVICE)
    result = busy(stream)
    stream.synchronize()
    assert stream.query()
    assert_same(result, torch.full((256, 256), 512.0))


def test_one_stream_waits_for_another() -> None:
    first, second = torch.Stream(DEVICE), torch.Stream(DEVICE)
    for wait in (lambda: second.wait_stream(first), lambda: second.wait_event(first.record_event())):
        result = busy(first)
        wait()
        with MODULE.stream(second):
            copy = result + 1
        result.record_stream(second)
        second.synchronize()
        assert_same(copy, torch.full((256, 256), 513.0))


def test_backward_uses_the_forwards_stream() -> None:
    stream, seen = torch.Stream(DEVICE), []
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    stream.wait_stream(torch.accelerator.current_stream())
    with MODULE.stream(stream):
        y = x * 2
        y.register_hook(lambda grad: seen.append(is_current(stream)))
        loss = y.sum()
    loss.backward()
    torch.accelerator.synchronize()
    assert seen == [True]
    assert_same(x.grad, torch.full((3,), 2.0))


def test_synchronize_at_each_level() -> None:
    result = busy(torch.Stream(DEVICE))
    MODULE.synchronize()
    torch.accelerator.synchronize()
    torch.accelerator.synchronize(0)
    MODULE.synchronize(DEVICE_0)
    assert_same(result, torch.full((256, 256), 512.0))


# ---- Events --------------------------------------------------------------------------------------------------------


def test_an_event_that_was_never_recorded_is_done() -> None:
    event = torch.Event(DEVICE)
    assert event.query()
    event.synchronize()
    event.wait()


def test_an_event_is_done_when_the_work_before_it_is() -> None:
    stream, event = torch.Stream(DEVICE), torch.Event(DEVICE)
    result = busy(stream)
    event.record(stream)
    event.synchronize()
    assert event.query()
    assert_same(result, torch.full((256, 256), 512.0))
    assert event.device == torch.device(DEVICE_0)


def test_an_event_may_be_recorded_again() -> None:
    event = torch.Event(DEVICE)
    for _ in range(3):
        result = busy()
        event.record()
        event.synchronize()
        assert_same(result, torch.full((256, 256), 512.0))


def test_elapsed_time_is_in_milliseconds_and_grows() -> None:
    start, middle, end = (torch.Event(DEVICE, enable_timing=True) for _ in range(3))
    begin = time.perf_counter()
    start.record()
    time.sleep(0.02)
    middle.record()
    busy()
    end.record()
    end.synchronize()
    assert 15 < start.elapsed_time(middle) <= (time.perf_counter() - begin) * 1000
    assert start.elapsed_time(end) > start.elapsed_time(middle)


def test_elapsed_time_needs_timing_enabled() -> None:
    start, end = torch.Event(DEVICE, enable_timing=True), torch.Event(DEVICE)
    start.record()
    end.record()
    MODULE.synchronize()
    with pytest.raises(ValueError, match="^Both events must be created with argument 'enable_timing=True'.$"):
        start.elapsed_time(end)


def test_elapsed_time_needs_recorded_events() -> None:
    start, end = torch.Event(DEVICE, enable_timing=True), torch.Event(DEVICE, enable_timing=True)
    start.record()
    with pytest.raises(ValueError, match="^Both events must be recorded before calculating elapsed time.$"):
        start.elapsed_time(end)


@TWO_DEVICES
def test_elapsed_time_needs_events_of_one_device() -> None:
    start, end = torch.Event(DEVICE, enable_timing=True), torch.Event(DEVICE, enable_timing=True)
    start.record(MODULE.current_stream(0))
    end.record(MODULE.current_stream(1))
    MODULE.synchronize(0)
    MODULE.synchronize(1)
    with pytest.raises(RuntimeError):
        start.elapsed_time(end)


@TWO_DEVICES
def test_an_event_is_recorded_on_its_own_device_only() -> None:
    event = torch.Event(DEVICE_0)
    event.record(torch.Stream(DEVICE_0))
    with pytest.raises(RuntimeError, match="^Event device index 0 does not match recording stream's device index 1.$"):
        event.record(torch.Stream(DEVICE_1))


@TWO_DEVICES
def test_a_stream_of_one_device_waits_for_an_event_of_another() -> None:
    result = busy()
    event = torch.accelerator.current_stream().record_event()
    stream = torch.Stream(DEVICE_1)
    stream.wait_event(event)
    with MODULE.stream(stream):
        copy = result.to(DEVICE_1) + 1
    stream.synchronize()
    assert_same(copy, torch.full((256, 256), 513.0))


def test_the_device_modules_own_classes() -> None:
    stream = MODULE.Stream(priority=0)
    event = MODULE.Event(enable_timing=True)
    with MODULE.stream(stream):
        busy()
        event.record()
    event.synchronize()
    assert stream.query()
    assert isinstance(stream, torch.Stream)
    assert isinstance(event, torch.Event)


def test_events_and_streams_may_go_while_work_is_queued() -> None:
    for _ in range(50):
        stream, event = torch.Stream(DEVICE), torch.Event(DEVICE)
        result = busy(stream)
        event.record(stream)
        del stream, event
    MODULE.synchronize()
    assert_same(result, torch.full((256, 256), 512.0))


def test_streams_of_several_threads_do_not_mix() -> None:
    results: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        stream = torch.Stream(DEVICE)
        with MODULE.stream(stream):
            a = torch.full((1000,), float(number), device=DEVICE)
            for _ in range(20):
                a = a + 1
            results[number] = a
        stream.synchronize()

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, result in results.items():
        assert_same(result, torch.full((1000,), number + 20.0))
