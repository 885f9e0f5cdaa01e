"""Level 5: work and copies run in the order of their streams, events order streams, errors arrive."""

import tempfile
import time
from pathlib import Path

import torch

from ..kit import NotOffered, busy, capture, device_module, equal, in_threads, pending, raises, same, usable
from ..registry import Topic

ordering = Topic(
    "streams/ordering",
    why="Work that starts too early reads what is not written yet. The results are then wrong, perhaps in one of 1000 "
    "runs.",
    defined="c10/core/impl/DeviceGuardImplInterface.h: getStream, exchangeStream, record, block, synchronizeStream",
    chapter="streams",
    needs=("streams", "events"),
    issue="pytorch/pytorch#195458",
)


@ordering.check()
def a_stream_keeps_its_order(device):
    """Work on one stream runs in the order in which it was launched."""
    x = torch.zeros(1000, device=device)
    for n in range(200):
        x.mul_(0.5).add_(n)
    expected = 0.0
    for n in range(200):
        expected = expected * 0.5 + n
    same(x, torch.full((1000,), expected))


@ordering.check()
def wait_stream_waits(device):
    """Work after wait_stream sees what the other stream wrote before."""
    here, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    for n in range(4):
        x = torch.zeros(1 << 16, device=device)
        side.wait_stream(here)
        with side:
            x.copy_(busy(device, 0.05).view(-1)[:1].expand(1 << 16) + n)
        here.wait_stream(side)
        y = x * 2
        same(y, torch.full((1 << 16,), 2.0 * (1 + n)))
        x.record_stream(side)


@ordering.check()
def a_stream_waits_for_an_event(device):
    """Work after Stream.wait_event sees everything before the event."""
    here, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    for n in range(4):
        x = torch.zeros(1 << 16, device=device)
        x.copy_(busy(device, 0.05).view(-1)[:1].expand(1 << 16) + n)
        event = here.record_event()
        side.wait_event(event)
        with side:
            y = x * 3
        side.synchronize()
        same(y, torch.full((1 << 16,), 3.0 * (1 + n)))


@ordering.check()
def an_event_waits_on_a_stream(device):
    """After Event.wait(stream), later work of that stream runs after the work before the event."""
    here, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    x = torch.zeros(1 << 16, device=device)
    x.copy_(busy(device, 0.1).view(-1)[:1].expand(1 << 16))
    event = torch.Event(device)
    event.record(here)
    event.wait(side)
    with side:
        y = x + 1
    side.synchronize()
    same(y, torch.full((1 << 16,), 2.0))


@ordering.check()
def an_event_holds_what_was_before_it(device):
    """If an event is recorded again, a later wait for the event waits for the work before the second record."""
    here, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    event = torch.Event(device)
    x = torch.zeros(1 << 16, device=device)
    event.record(here)
    x.copy_(busy(device, 0.1).view(-1)[:1].expand(1 << 16))
    event.record(here)
    side.wait_event(event)
    with side:
        y = x + 1
    side.synchronize()
    same(y, torch.full((1 << 16,), 2.0))


@ordering.check()
def an_event_never_recorded_holds_nothing(device):
    """For an event that was never recorded, query() is true, and each kind of wait returns at once."""
    event = torch.Event(device)
    assert event.query()
    event.synchronize()
    torch.accelerator.current_stream(device).wait_event(event)
    usable(device)


@ordering.check("two_devices")
def events_order_devices(device):
    """A stream of device 1 waits for an event of device 0."""
    type = torch.device(device).type
    x = torch.zeros(1 << 16, device=f"{type}:0")
    x.copy_(busy(f"{type}:0", 0.1).view(-1)[:1].expand(1 << 16))
    event = torch.accelerator.current_stream(f"{type}:0").record_event()
    torch.accelerator.current_stream(f"{type}:1").wait_event(event)
    y = x.to(f"{type}:1") + 1
    same(y, torch.full((1 << 16,), 2.0))


@ordering.check("two_devices")
def copies_between_devices_are_ordered(device):
    """A copy waits for the current stream of the source's device. Later work on both devices waits for the copy."""
    type = torch.device(device).type
    for _ in range(3):
        x = busy(f"{type}:0", 0.05) + 1
        y = x.to(f"{type}:1", non_blocking=True)
        z = y * 2
        x.zero_()
        same(z, torch.full((256, 256), 4.0))


futures = Topic(
    "streams/futures",
    why="torch.distributed and RPC return futures. The value of a future is a tensor that a stream may still compute.",
    defined="ATen/core/ivalue_inl.h: Future::synchronizeWithCurrentStreams, invokeCallback; recordDataPtrOnStream",
    chapter="streams",
    needs=("streams", "events", "storage"),
)


@futures.check()
def a_futures_value_is_waited_for(device):
    """After wait() of a future, the current stream waits for the work that computes the future's value."""
    side = torch.Stream(device=device)
    future = torch.futures.Future(devices=[torch.ones(1, device=device).device])
    with side:
        future.set_result(busy(device, 0.1) + 1)
    same(future.wait() * 2, torch.full((256, 256), 4.0))


@futures.check()
def a_futures_value_outlives_its_last_use(device):
    """The memory of a future's value is not reused before the stream that waited for the future has used it."""
    here, side = torch.accelerator.current_stream(device), torch.Stream(device=device)
    future = torch.futures.Future(devices=[torch.ones(1, device=device).device])
    with side:
        x = torch.full((1 << 20,), 1.0, device=device)
        future.set_result(x)
    side.synchronize()
    address = future.wait().data_ptr()
    busy(device, 0.3)
    y = x + 0
    del x, future
    done = here.query()
    with side:
        z = torch.full((1 << 20,), 2.0, device=device)
    assert done or here.query() or z.data_ptr() != address, (
        "the memory was handed out again while a stream still used it"
    )
    torch.accelerator.synchronize(device)
    equal((y.min().item(), y.max().item()), (1.0, 1.0))


@futures.check("two_devices")
def a_futures_callback_has_its_devices(device):
    """The callback of a future with a value on device 1 has a new current stream there, which waits for the value."""
    type = torch.device(device).type
    future = torch.futures.Future(devices=[f"{type}:0", f"{type}:1"])
    streams = []

    def work(done):
        streams.append(torch.accelerator.current_stream(f"{type}:1"))
        return done.value() * 2

    result = future.then(work)
    future.set_result(busy(f"{type}:1", 0.1) + 1)
    same(result.wait(), torch.full((256, 256), 4.0))
    assert streams[0] != torch.accelerator.current_stream(f"{type}:1"), "the callback ran on the caller's stream"


waiting = Topic(
    "streams/waiting",
    why="If synchronize returns too early, the host reads unfinished results, and a timer measures only the launch.",
    defined="DeviceGuardImplInterface: synchronizeStream, synchronizeDevice, synchronizeEvent, queryStream, queryEvent",
    chapter="streams",
    needs=("streams", "events"),
)


@waiting.check()
def synchronize_waits_for_everything(device):
    """After torch.accelerator.synchronize(), every stream and event of the device is done."""
    streams = [torch.Stream(device=device) for _ in range(3)]
    events = []
    for stream in streams:
        with stream:
            busy(device, 0.05)
        events.append(stream.record_event())
    torch.accelerator.synchronize(device)
    assert all(stream.query() for stream in streams) and all(event.query() for event in events)


@waiting.check()
def a_streams_synchronize_waits(device):
    """After stream.synchronize(), all work of the stream is done, and its results can be read."""
    stream = torch.Stream(device=device)
    with stream:
        y = busy(device, 0.1)
        event = stream.record_event()
    stream.synchronize()
    assert stream.query() and event.query()
    same(y.cpu(), torch.ones(256, 256))


@waiting.check()
def an_events_synchronize_waits(device):
    """After event.synchronize(), event.query() is true."""
    stream = torch.Stream(device=device)
    with stream:
        busy(device, 0.1)
    event = stream.record_event()
    event.synchronize()
    assert event.query()


@waiting.check()
def a_query_tells_the_truth(device):
    """query() becomes true after the work is done. If event.query() is true, the results before it are complete."""
    stream = torch.Stream(device=device)
    with stream:
        y = busy(device, 0.2)
    event = stream.record_event()
    while not event.query():
        time.sleep(0.001)
    other = torch.Stream(device=device)
    with other:
        z = y + 0
    other.synchronize()
    same(z, torch.ones(256, 256))
    deadline = time.monotonic() + 50  # the kit ends a check after 60 s
    while not stream.query():
        assert time.monotonic() < deadline, "the stream never turns idle"
        time.sleep(0.001)


@waiting.check()
def busy_is_not_done(device):
    """While work is pending, neither the event behind it nor the stream is done. After event.synchronize(), both are."""
    event = pending(device)
    event.synchronize()
    assert event.query()
    assert torch.accelerator.current_stream(device).query()


@waiting.check()
def reading_a_value_waits(device):
    """cpu(), item() and tolist() wait for the work that makes the value."""
    for read in (lambda t: t.cpu().sum().item(), lambda t: t.sum().item(), lambda t: sum(map(sum, t.tolist()))):
        equal(read(busy(device, 0.05)), 65536.0)


@waiting.check("timing")
def elapsed_time_measures_work(device):
    """elapsed_time between two events is positive, in milliseconds, and about the time of the work between them."""
    first, second = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    stream = torch.accelerator.current_stream(device)
    torch.accelerator.synchronize(device)
    started = time.perf_counter()
    first.record(stream)
    busy(device, 0.2)
    second.record(stream)
    second.synchronize()
    wall = 1000 * (time.perf_counter() - started)
    found = first.elapsed_time(second)
    assert 0.2 * wall < found <= 1.2 * wall + 5, f"elapsed_time() is {found} ms; the host measured {wall} ms"


@waiting.check("timing")
def elapsed_time_needs_timing(device):
    """elapsed_time raises for events without timing, and for events that were never recorded."""
    stream = torch.accelerator.current_stream(device)
    first, second = torch.Event(device), torch.Event(device)
    first.record(stream), second.record(stream)
    second.synchronize()
    with raises((RuntimeError, ValueError)):
        first.elapsed_time(second)
    with raises((RuntimeError, ValueError)):
        torch.Event(device, enable_timing=True).elapsed_time(torch.Event(device, enable_timing=True))


current = Topic(
    "streams/current",
    why="If a stream stays current after its `with` block, later work runs on the wrong stream.",
    defined="torch/csrc/Stream.cpp; DeviceGuardImplInterface: getStream, getNewStream, getDefaultStream, "
    "exchangeStream",
    chapter="streams",
    needs=("streams",),
    issue="pytorch/pytorch#196302",
)


@current.check()
def with_sets_and_restores_the_stream(device):
    """`with stream` sets the current stream and restores the previous one, also if nested and after an exception."""
    first, second = torch.Stream(device=device), torch.Stream(device=device)
    before = torch.accelerator.current_stream(device)
    try:
        with first:
            equal(torch.accelerator.current_stream(device), first)
            with second:
                equal(torch.accelerator.current_stream(device), second)
            equal(torch.accelerator.current_stream(device), first)
            raise KeyError
    except KeyError:
        pass
    equal(torch.accelerator.current_stream(device), before)


@current.check("events")
def work_goes_to_the_current_stream(device):
    """Long work that is launched within `with stream` keeps that stream busy. The previous stream stays idle."""
    here, stream = torch.accelerator.current_stream(device), torch.Stream(device=device)
    torch.accelerator.synchronize(device)
    with stream:
        event = pending(device)
    assert here.query(), "the previous stream is busy"
    event.synchronize()


@current.check()
def set_stream_sets_it(device):
    """torch.accelerator.set_stream sets the current stream of its device."""
    before, stream = torch.accelerator.current_stream(device), torch.Stream(device=device)
    try:
        torch.accelerator.set_stream(stream)
        equal(torch.accelerator.current_stream(device), stream)
    finally:
        torch.accelerator.set_stream(before)
    equal(torch.accelerator.current_stream(device), before)


@current.check()
def streams_know_their_device(device):
    """A stream knows its device, compares equal to itself only, and can be hashed."""
    first, second = torch.Stream(device=device), torch.Stream(device=device)
    equal(first.device.type, torch.device(device).type)
    assert first == first and first != second
    equal(len({first, second, first}), 2)


@current.check("two_devices")
def every_device_has_its_current_stream(device):
    """A stream that is set on device 1 does not change the current stream of device 0."""
    type = torch.device(device).type
    before = torch.accelerator.current_stream(f"{type}:0")
    stream = torch.Stream(device=f"{type}:1")
    with stream:
        equal(torch.accelerator.current_stream(f"{type}:1"), stream)
        equal(torch.accelerator.current_stream(f"{type}:0"), before)
    equal(torch.accelerator.current_device_index(), 0)
    equal(stream.device.index, 1)


@current.check()
def every_thread_has_its_current_stream(device):
    """A stream that is set in one thread is not the current stream of another thread."""
    stream = torch.Stream(device=device)
    with stream:
        (found,) = in_threads(lambda: torch.accelerator.current_stream(device))
    assert found != stream


@current.check("module")
def the_module_knows_its_streams(device):
    """In `with torch.TYPE.stream(s)`, torch.TYPE.current_stream() is s. Before and after, it is the default stream."""
    module = device_module(device)
    for name in ("Stream", "stream", "current_stream", "default_stream"):
        if not hasattr(module, name):
            raise NotOffered(f"the module has no {name}")
    equal(module.current_stream(), module.default_stream())
    stream = module.Stream()
    with module.stream(stream):
        equal(module.current_stream(), stream)
        assert module.current_stream() != module.default_stream()
    equal(module.current_stream(), module.default_stream())


@current.check("module")
def streams_have_priorities(device):
    """torch.TYPE.Stream(priority=-1) can be made, computes, and has a smaller priority number than the default."""
    module = device_module(device)
    stream = module.Stream(priority=-1)
    with stream:
        x = torch.ones(3, device=device) + 1
    stream.synchronize()
    same(x, torch.full((3,), 2.0))
    if hasattr(stream, "priority"):
        assert stream.priority < module.Stream().priority


@current.check()
def many_streams_can_be_made(device):
    """A hundred streams can be made and used. They may share queues, but all of them compute."""
    streams = [torch.Stream(device=device) for _ in range(100)]
    found = []
    for n, stream in enumerate(streams):
        with stream:
            found.append(torch.full((10,), float(n), device=device) + 1)
    torch.accelerator.synchronize(device)
    equal([float(x[0]) for x in found], [n + 1.0 for n in range(100)])


@current.check()
def streams_have_native_handles(device):
    """stream.native_handle, which extensions give to the vendor's library, differs between streams."""
    first, second = torch.Stream(device=device), torch.Stream(device=device)
    if not hasattr(torch.Stream, "native_handle"):
        raise NotOffered("this PyTorch has no Stream.native_handle")
    try:
        first.native_handle  # noqa: B018
    except RuntimeError as error:
        raise NotOffered(str(error)) from error
    assert first.native_handle != second.native_handle


@current.check()
def no_stream_is_capturing(device):
    """Stream.is_capturing() is false while no graph is captured."""
    stream = torch.accelerator.current_stream(device)
    if not hasattr(stream, "is_capturing"):
        raise NotOffered("this PyTorch has no Stream.is_capturing")
    assert stream.is_capturing() is False


asynchronous = Topic(
    "streams/copies",
    why="If an asynchronous copy reads its source too late, or if the host reads the result too early, batches are "
    "wrong.",
    defined="aten::copy_(non_blocking=True); aten::_copy_from; CachingHostAllocator::record_event",
    chapter="streams",
    needs=("streams", "events", "pinned"),
    issue="sgl-project/sglang#16493",
)


@asynchronous.check()
def from_pinned_memory(device):
    """Work that is launched after a non_blocking copy from pinned memory, on the same stream, reads the new values."""
    x = torch.arange(1 << 18, dtype=torch.float32).pin_memory()
    busy(device, 0.05)
    y = x.to(device, non_blocking=True)
    equal((y * 2).sum().item(), (torch.arange(1 << 18, dtype=torch.float32) * 2).sum().item())


@asynchronous.check()
def to_pinned_memory(device):
    """A non_blocking copy to pinned memory has the values after the stream is synchronised."""
    y = torch.zeros(256, 256, pin_memory=True)
    y.copy_(busy(device, 0.1), non_blocking=True)
    torch.accelerator.current_stream(device).synchronize()
    same(y, torch.ones(256, 256))


@asynchronous.check()
def from_pageable_memory_the_source_may_change(device):
    """After a non_blocking copy from pageable memory the source may be overwritten at once, as on CUDA."""
    busy(device, 0.1)
    x = torch.ones(1 << 16)
    y = x.to(device, non_blocking=True)
    x.zero_()
    same(y, torch.ones(1 << 16))


@asynchronous.check()
def to_pageable_memory_is_done(device):
    """A blocking copy to the CPU is finished when the call returns, also while another stream is busy."""
    side = torch.Stream(device=device)
    with side:
        busy(device, 0.2)
    x = busy(device, 0.05)
    same(x.cpu(), torch.ones(256, 256))


@asynchronous.check("events")
def to_pageable_memory_waits_in_any_case(device):
    """A non_blocking copy to pageable memory is finished when the call returns, as on CUDA."""
    y = torch.zeros(256, 256)
    y.copy_(busy(device, 0.2), non_blocking=True)
    same(y, torch.ones(256, 256))


@asynchronous.check()
def on_a_side_stream(device):
    """Batches that are copied on a side stream are right if the current stream waits for an event after each copy."""
    side = torch.Stream(device=device)
    here = torch.accelerator.current_stream(device)
    total = []
    for n in range(5):
        batch = torch.full((1 << 14,), float(n)).pin_memory()
        with side:
            there = batch.to(device, non_blocking=True)
            ready = side.record_event()
        here.wait_event(ready)
        total.append((there + 1).mean())
        there.record_stream(here)
    equal([float(t) for t in total], [n + 1.0 for n in range(5)])


graphs = Topic(
    "streams/graphs",
    why="A graph replays what a capture recorded. If a capture runs its work, misses some of it or keeps the wrong "
    "addresses, the program computes with old numbers, without an error.",
    defined="ATen/accelerator/Graph.h: GraphImplInterface; c10/core/impl/DeviceGuardImplInterface.h: isStreamCapturing",
    chapter="graphs",
    needs=("streams", "events", "graphs"),
)


@graphs.check()
def a_capture_runs_nothing(device):
    """In a capture a tensor keeps its values. Each replay then runs the captured work once."""
    x = torch.ones(8, device=device)
    graph, _ = capture(device, lambda: x.add_(1))
    same(x, torch.ones(8))
    graph.replay()
    graph.replay()
    same(x, torch.full((8,), 3.0))


@graphs.check()
def a_replay_reads_new_values(device):
    """A replay computes with what its inputs hold now, and writes to the tensors that the capture made."""
    x = torch.ones(4, device=device)
    graph, y = capture(device, lambda: (x * 2).exp())
    for number in (0.0, 1.0, 2.0):
        x.fill_(number)
        graph.replay()
        same(y, torch.full((4,), 2 * number).exp())


@graphs.check()
def a_replay_keeps_the_order_of_its_stream(device):
    """Work before a replay is done before it, and work after a replay sees what it wrote."""
    x = torch.zeros(1 << 16, device=device)
    graph, y = capture(device, lambda: x + 1)
    x.copy_(busy(device, 0.1).view(-1)[:1].expand(1 << 16))
    graph.replay()
    z = y * 3
    same(z, torch.full((1 << 16,), 6.0))


@graphs.check()
def a_side_stream_joins_a_capture(device):
    """Work of a stream that waits for a capturing stream is captured, and the replay keeps the order of the waits."""
    x, side = torch.ones(1 << 12, device=device), torch.Stream(device=device)

    def compute():
        here = torch.accelerator.current_stream(device)
        a = x + 1
        side.wait_stream(here)
        with side:
            b = a * 2
        c = a * 3
        here.wait_stream(side)
        return b + c

    graph, y = capture(device, compute)
    for number in (1.0, 4.0):
        x.fill_(number)
        graph.replay()
        same(y, torch.full((1 << 12,), 5 * (number + 1)))


@graphs.check()
def a_side_stream_must_join_again(device):
    """The end of a capture raises if a stream that joined has work that the capturing stream does not wait for."""
    x, side = torch.ones(8, device=device), torch.Stream(device=device)

    def compute():
        side.wait_stream(torch.accelerator.current_stream(device))
        with side:
            x.add_(1)

    with raises(RuntimeError):
        capture(device, compute)
    torch.accelerator.synchronize(device)
    same(x, torch.ones(8))
    usable(device)


@graphs.check()
def a_capture_refuses_to_wait(device):
    """In a capture `item()` raises, because its number does not exist yet. The device is usable afterwards."""
    x = torch.ones(8, device=device)
    with raises(RuntimeError):
        capture(device, lambda: x.sum().item())
    usable(device)
    graph, y = capture(device, lambda: x + 1)
    graph.replay()
    same(y, torch.full((8,), 2.0))


@graphs.check()
def a_stream_says_whether_it_captures(device):
    """`is_capturing()` is true in a capture, and false before and after it."""
    stream, graph = torch.Stream(device=device), torch.accelerator.Graph()
    found = [stream.is_capturing()]
    with stream, graph:
        torch.ones(1, device=device)
        found.append(stream.is_capturing())
    equal([*found, stream.is_capturing()], [False, True, False])


@graphs.check("generator")
def replays_draw_new_random_numbers(device):
    """Replays draw the random numbers that eager calls draw from the same seed, one after the other."""
    torch.manual_seed(3)
    expected = [torch.rand(64, device=device).cpu() for _ in range(2)]
    graph, x = capture(device, lambda: torch.rand(64, device=device))
    torch.manual_seed(3)
    for each in expected:
        graph.replay()
        same(x, each)


@graphs.check()
def a_training_step_is_captured(device):
    """Forward, backward and the optimizer's step in one graph train as without a graph."""
    torch.manual_seed(0)
    models = [torch.nn.Linear(8, 4).to(device) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(16, 8).to(device)

    def step(model):
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.sub_(parameter.grad, alpha=0.1)
                parameter.grad.zero_()

    for model in models:
        step(model)  # makes the gradients, which a capture must find
    graph, _ = capture(device, lambda: step(models[1]))
    for _ in range(3):
        step(models[0])
        graph.replay()
    for eager, replayed in zip(models[0].parameters(), models[1].parameters(), strict=True):
        same(replayed, eager.cpu())


@graphs.check()
def a_graph_without_a_capture_is_refused(device):
    """`replay()` of a graph that captured nothing raises."""
    with raises(RuntimeError):
        torch.accelerator.Graph().replay()
    usable(device)


@graphs.check()
def a_graph_is_drawn(device):
    """After `enable_debug_mode()`, `debug_dump()` writes the graph in the language DOT."""
    graph, x = torch.accelerator.Graph(), torch.ones(4, device=device)
    graph.enable_debug_mode()
    with torch.Stream(device=device), graph:
        x.add_(1)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "graph.dot")
        graph.debug_dump(str(file))
        assert file.read_text().startswith("digraph"), file.read_text()[:100]


failures = Topic(
    "streams/errors",
    why="If an error of queued work is never raised, the job goes on with wrong data.",
    defined="c10/core/Device.h; CUDA's rule: an error of queued work is raised by a later call",
    chapter="execution",
    needs=("streams",),
    issue="meituan/YOLOv6#293",
)


@failures.check()
def a_queued_failure_is_raised(device):
    """An embedding with an index beyond the table raises at the latest at the next synchronisation."""
    table = torch.ones(4, 3, device=device)
    with raises((RuntimeError, IndexError)):
        torch.nn.functional.embedding(torch.tensor([9], device=device), table)
        torch.accelerator.synchronize(device)


@failures.check()
def a_stream_of_a_missing_device_is_refused(device):
    """Making a stream for a device index that does not exist raises."""
    with raises((RuntimeError, ValueError)):
        torch.Stream(device=f"{torch.device(device).type}:77")
    usable(device)


@failures.check("events")
def an_event_of_another_device_is_refused(device):
    """Recording an event of device 0 on a stream of device 1 raises."""
    type = torch.device(device).type
    if torch.accelerator.device_count() < 2:
        raise NotOffered("there are not two devices of this type")
    event = torch.Event(f"{type}:0")
    event.record(torch.accelerator.current_stream(f"{type}:0"))
    with raises((RuntimeError, ValueError)):
        event.record(torch.accelerator.current_stream(f"{type}:1"))
    usable(device)
