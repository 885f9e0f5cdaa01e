"""Graphs (openreg_graph.h): capture, its rules and refusals, and replay, in each execution mode."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openreg_c import (
    ASYNC,
    CALL,
    COPY,
    DEFAULT,
    FILL,
    KERNEL,
    SIZE,
    DeferredFn,
    GraphNode,
    HostFn,
    Kernel,
    KernelScope,
    Observer,
    OpenRegError,
    call,
    download,
    get_int,
    get_pointer,
    lib,
    malloc,
    upload,
)
from openreg_process import compile_program, cpp_compiler, output_of, raises, run_program
from openreg_work import (
    FAILS,
    FAILURE,
    MODES,
    Gate,
    copy_async,
    in_thread,
    kept,
    launch,
    launch_host,
    record,
    synchronize,
    wait_event,
)

pytestmark = pytest.mark.usefixtures("clean_device")
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
NONE, ACTIVE, INVALIDATED = range(3)
KERNEL_NODE, COPY_NODE, FILL_NODE, HOST_NODE, WAIT_NODE, RECORD_NODE = 0, 1, 2, 3, 6, 7
LAUNCH, NODE = 128, 1024
ONCE = 4
EXTERNAL = 1
PERMITTED = "operation not permitted when stream is capturing: "
STATE = (
    PERMITTED
    + "the call asks whether work is done, and the work of a capture does not run. Make it before the capture "
    "or after it"
)


def begin(stream: int, mode: int = GLOBAL) -> None:
    call("orStreamBeginCapture", stream, mode)


def end(stream: int) -> int:
    graph = ctypes.c_void_p()
    call("orStreamEndCapture", stream, ctypes.byref(graph))
    assert graph.value
    return graph.value


def status(stream: int | None) -> int:
    value = ctypes.c_int(-1)
    call("orStreamIsCapturing", stream, ctypes.byref(value))
    return value.value


def fails(function: Callable[[], object]) -> tuple[str, str]:
    with pytest.raises(OpenRegError) as info:
        function()
    return info.value.name, info.value.message


def nodes(graph: int) -> list[tuple[int, list[int]]]:
    """The type and the dependencies of each node."""
    count = SIZE()
    call("orGraphGetNodeCount", graph, ctypes.byref(count))
    found = []
    for number in range(count.value):
        node = GraphNode()
        call("orGraphGetNode", graph, number, ctypes.byref(node))
        found.append((node.type, node.dependencies[: node.dependency_count]))
    return found


class Graph:
    """A context manager that captures its block on `stream`, and then launches with `replay()`."""

    def __init__(self, stream: int, mode: int = GLOBAL) -> None:
        self.stream = stream
        self.mode = mode

    def __enter__(self) -> Graph:
        begin(self.stream, self.mode)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.graph = end(self.stream)
            self.exec = get_pointer("orGraphInstantiate", self.graph, 0)
        else:
            lib.orStreamEndCapture(self.stream, ctypes.byref(ctypes.c_void_p()))

    def replay(self, stream: int | None = None) -> None:
        call("orGraphLaunch", self.exec, self.stream if stream is None else stream)

    def destroy(self) -> None:
        call("orGraphExecDestroy", self.exec)
        call("orGraphDestroy", self.graph)


@contextmanager
def body(stream: int, condition: int, size: int = 1) -> Iterator[None]:
    """What the block captures on `stream` is the body of a conditional node."""
    call("orStreamBeginConditional", stream, condition, size)
    yield
    call("orStreamEndConditional", stream)


def record_and_join(stream: int, side: int, event: int) -> None:
    """Launches on `side`, which joins the capture and is not joined again."""
    record(event, stream)
    wait_event(side, event)
    launch(side, lambda: None)


@pytest.fixture
def memory() -> Iterator[int]:
    """8 bytes of the device."""
    pointer = malloc(8)
    upload(pointer, bytes(8))
    yield pointer
    call("orFree", pointer)


@pytest.fixture
def pinned() -> Iterator[int]:
    """64 bytes of pinned memory."""
    pointer = get_pointer("orMallocHost", 64)
    ctypes.memset(pointer, 0, 64)
    yield pointer
    call("orFreeHost", pointer)


# ---- capture and replay


def test_a_capture_runs_nothing_and_each_replay_runs_all(mode: str, stream: int, memory: int, pinned: int) -> None:
    ran: list[str] = []
    with Graph(stream) as graph:
        launch(stream, lambda: ran.append("kernel"))
        call("orMemsetAsync", memory, 7, 4, stream)
        copy_async(pinned, memory, 8, stream)
        launch_host(stream, lambda: ran.append("host"))
    synchronize(stream)
    assert (ran, download(memory, 8)) == ([], bytes(8))
    assert nodes(graph.graph) == [(KERNEL_NODE, []), (FILL_NODE, [0]), (COPY_NODE, [1]), (HOST_NODE, [2])]
    for _ in range(3):
        graph.replay()
    synchronize(stream)
    assert ran == ["kernel", "host"] * 3
    assert ctypes.string_at(pinned, 8) == bytes([7] * 4 + [0] * 4)
    graph.destroy()


def test_work_that_another_thread_completes_runs_at_each_replay(mode: str, stream: int, other: int) -> None:
    order: list[str] = []
    threads: list[threading.Thread] = []

    def complete(completion: int) -> None:
        order.append("done")
        lib.orCompletionSignal(completion, None)

    def start(_: int | None, completion: int) -> None:
        order.append("begun")
        threads.append(threading.Thread(target=complete, args=(completion,)))
        threads[-1].start()

    kept.append(DeferredFn(start))
    with Graph(stream) as graph:
        call("orLaunchDeferred", stream, kept[-1], None, ctypes.byref(Kernel(b"all_reduce")))
        launch(stream, lambda: order.append("after"))
    assert (order, nodes(graph.graph)) == ([], [(KERNEL_NODE, []), (KERNEL_NODE, [0])])
    for on in (stream, other):
        graph.replay(on)
        synchronize(on)
    assert order == ["begun", "done", "after"] * 2
    for thread in threads:
        thread.join()
    graph.destroy()


def test_a_failure_of_deferred_work_is_the_failure_of_the_stream_of_the_replay(
    mode: str, stream: int, other: int
) -> None:
    with Graph(stream) as graph:
        call("orLaunchDeferred", stream, ctypes.cast(FAILS, DeferredFn), None, None)
    graph.replay(other)
    assert fails(lambda: synchronize(other))[0] == "orErrorLaunchFailure"
    synchronize(stream)
    graph.destroy()


def test_a_replay_reads_what_is_now_at_the_address(mode: str, stream: int, memory: int, pinned: int) -> None:
    with Graph(stream) as graph:
        copy_async(pinned, memory, 8, stream)
    for byte in (1, 2):
        upload(memory, bytes([byte] * 8))
        graph.replay()
        synchronize(stream)
        assert ctypes.string_at(pinned, 8) == bytes([byte] * 8)
    graph.destroy()


def test_work_that_was_pending_when_the_capture_began_still_runs(mode: str, stream: int) -> None:
    ran: list[int] = []
    with Gate(stream) as gate:
        launch(stream, lambda: ran.append(1))
        with Graph(stream) as graph:
            launch(stream, lambda: ran.append(2))
        gate.open()
    synchronize(stream)
    assert ran == [1]
    graph.destroy()


def test_a_replay_is_ordered_as_one_launch(mode: str, stream: int, other: int, make_event: Callable[..., int]) -> None:
    ran: list[str] = []
    fork, join = make_event(), make_event()
    with Graph(stream) as graph:
        record(fork, stream)
        wait_event(other, fork)
        launch(other, lambda: ran.append("branch"))
        launch(stream, lambda: ran.append("trunk"))
        record(join, other)
        wait_event(stream, join)
        launch(stream, lambda: ran.append("last"))
    assert nodes(graph.graph) == [(KERNEL_NODE, []), (KERNEL_NODE, []), (KERNEL_NODE, [1, 0])]
    with Gate(stream):
        launch(stream, lambda: ran.append("before"))
        if mode == "inline":
            in_thread(graph.replay).join()  # the stream is busy, so the graph is queued
        else:
            graph.replay()
        launch(stream, lambda: ran.append("after"))
        assert ran == []
    synchronize(stream)
    assert (ran[0], ran[-2:], sorted(ran[1:3])) == ("before", ["last", "after"], ["branch", "trunk"])
    graph.replay(other)
    synchronize(other)
    assert (ran[7], sorted(ran[5:7])) == ("last", ["branch", "trunk"])
    graph.destroy()


def test_branches_of_a_replay_overlap(stream: int, other: int, make_event: Callable[..., int]) -> None:
    """The kernel ends only if the host function of the other branch runs meanwhile."""
    call("orSetExecutionMode", ASYNC, 0)
    met = threading.Event()
    fork, join = make_event(), make_event()
    seen: list[bool] = []
    with Graph(stream) as graph:
        record(fork, stream)
        wait_event(other, fork)
        launch(stream, lambda: seen.append(met.wait(600)))
        launch_host(other, met.set)
        record(join, other)
        wait_event(stream, join)
    graph.replay()
    synchronize(stream)
    assert seen == [True]
    graph.destroy()


def test_launches_of_one_executable_graph_run_one_after_the_other(mode: str, stream: int, other: int) -> None:
    ran: list[int] = []
    with Graph(stream) as graph:
        launch_host(stream, lambda: ran.append(len(ran)))
    with Gate(stream):
        in_thread(graph.replay).join()
        in_thread(lambda: graph.replay(other)).join()
        assert ran == []
    synchronize(other)
    assert ran == [0, 1]
    graph.destroy()


def test_a_graph_may_be_destroyed_while_its_launch_is_pending(mode: str, stream: int) -> None:
    ran: list[int] = []
    with Graph(stream) as graph:
        launch(stream, lambda: ran.append(1))
    with Gate(stream):
        in_thread(graph.replay).join()
        graph.destroy()
    synchronize(stream)
    assert ran == [1]
    assert fails(graph.replay) == (
        "orErrorInvalidResourceHandle",
        f"orGraphLaunch: executable graph {graph.exec:#x} does not exist; it was destroyed, or is no executable graph",
    )


def test_a_graph_of_two_devices_runs_each_node_on_its_device(
    mode: str, stream: int, make_stream: Callable[..., int], make_event: Callable[..., int]
) -> None:
    devices: list[int] = []
    far = make_stream(1)
    back = make_event(1)
    fork = make_event(0)
    with Graph(stream) as graph:
        record(fork, stream)
        wait_event(far, fork)
        launch(far, lambda: devices.append(get_int("orGetDevice")))
        record(back, far)
        wait_event(stream, back)
        launch(stream, lambda: devices.append(get_int("orGetDevice")))
    graph.replay()
    synchronize(stream)
    graph.replay(far)
    synchronize(far)
    assert devices == [1, 0, 1, 0]
    graph.destroy()


def test_a_failure_of_a_branch_is_the_failure_of_the_stream(
    mode: str, stream: int, other: int, make_event: Callable[..., int]
) -> None:
    ran: list[int] = []
    fork, join = make_event(), make_event()
    with Graph(stream) as graph:
        record(fork, stream)
        wait_event(other, fork)
        call("orLaunch", other, FAILS, None, 0)
        record(join, other)
        launch(stream, lambda: ran.append(1))
        wait_event(stream, join)
    for _ in range(2):
        graph.replay()
        with raises("orErrorLaunchFailure", "orStreamSynchronize: " + FAILURE.format(0)):
            synchronize(stream)
        synchronize(stream)
    call("orDeviceSynchronize")
    assert ran == [1, 1]
    graph.destroy()


def test_a_graph_that_is_launched_in_a_capture_becomes_a_part_of_the_new_graph(mode: str, stream: int) -> None:
    ran: list[str] = []
    with Graph(stream) as inner:
        launch(stream, lambda: ran.append("inner"))
    with Graph(stream) as outer:
        launch(stream, lambda: ran.append("first"))
        inner.replay()
        launch(stream, lambda: ran.append("last"))
    inner.destroy()
    assert nodes(outer.graph) == [(KERNEL_NODE, []), (KERNEL_NODE, [0]), (KERNEL_NODE, [1])]
    outer.replay()
    synchronize(stream)
    assert ran == ["first", "inner", "last"]
    outer.destroy()


def test_external_events_are_recorded_and_awaited_by_each_replay(
    mode: str, stream: int, other: int, make_event: Callable[..., int]
) -> None:
    ran: list[str] = []
    before, after = make_event(), make_event()
    with Graph(stream) as graph:
        call("orStreamWaitEvent", stream, before, EXTERNAL)
        launch(stream, lambda: ran.append("graph"))
        call("orEventRecordWithFlags", after, stream, EXTERNAL)
    assert nodes(graph.graph) == [(WAIT_NODE, []), (KERNEL_NODE, [0]), (RECORD_NODE, [1])]
    with Gate(other):
        record(before, other)
        graph.replay()
        assert ran == []
        assert lib.orEventQuery(after) == 600
    call("orEventSynchronize", after)
    assert ran == ["graph"]
    graph.destroy()


def test_a_replay_skips_the_body_of_a_conditional_node_whose_bytes_are_0(mode: str, stream: int, memory: int) -> None:
    ran: list[str] = []
    with Graph(stream) as graph:
        launch(stream, lambda: ran.append("before"))
        with body(stream, memory):
            launch(stream, lambda: ran.append("body"))
            call("orMemsetAsync", memory, 0, 1, stream)  # the node has read it already
            with body(stream, memory + 1, 2):
                launch(stream, lambda: ran.append("inner"))
                call("orMemsetAsync", memory + 7, 7, 1, stream)
            call("orMemsetAsync", memory + 6, 6, 1, stream)
        launch(stream, lambda: ran.append("after"))
    for condition, bodies, last in (
        (b"\0\1\1", [], b"\0\0"),
        (b"\2\0\0", ["body"], b"\6\0"),
        (b"\2\0\1", ["body", "inner"], b"\6\7"),
    ):
        upload(memory, condition + bytes(5))
        ran.clear()
        graph.replay()
        synchronize(stream)
        assert ran == ["before", *bodies, "after"] and download(memory, 8)[6:] == last
    graph.destroy()


def test_a_graph_and_a_stream_that_join_in_a_body_belong_to_it(
    mode: str, stream: int, memory: int, make_stream: Callable[[], int], make_event: Callable[..., int]
) -> None:
    side, fork, join = make_stream(), make_event(), make_event()
    ran: list[str] = []
    with Graph(stream) as child, body(stream, memory + 1):
        launch(stream, lambda: ran.append("child"))
    with Graph(stream) as graph:
        launch(stream, lambda: None)
        with body(stream, memory):
            record(fork, stream)
            wait_event(side, fork)
            launch(side, lambda: ran.append("side"))
            record(join, side)
            wait_event(stream, join)
            child.replay()
        wait_event(side, join)
        launch(side, lambda: ran.append("outside"))
        record(join, side)
        wait_event(stream, join)
    for condition, expected in ((b"\0\1", ["outside"]), (b"\1\1", ["side", "child", "outside"])):
        upload(memory, condition)
        ran.clear()
        graph.replay()
        synchronize(stream)
        assert sorted(ran) == sorted(expected)
    graph.destroy()
    child.destroy()


def test_what_a_body_refuses(
    mode: str, stream: int, memory: int, make_stream: Callable[[], int], make_event: Callable[..., int]
) -> None:
    no_capture = "the stream does not capture; begin with orStreamBeginCapture"
    for name, arguments in (("orStreamBeginConditional", (stream, memory, 1)), ("orStreamEndConditional", (stream,))):
        assert fails(lambda: call(name, *arguments)) == ("orErrorIllegalState", f"{name}: {no_capture}")  # noqa: B023
    begin(stream)
    assert fails(lambda: call("orStreamEndConditional", stream)) == (
        "orErrorIllegalState",
        "orStreamEndConditional: the stream is in no body; begin with orStreamBeginConditional",
    )
    call("orStreamBeginConditional", stream, memory, 1)
    assert fails(lambda: end(stream)) == (
        "orErrorIllegalState",
        "orStreamEndCapture: the stream is in the body of a conditional node; call orStreamEndConditional",
    )
    side, event = make_stream(), make_event()
    text = f"{PERMITTED}the body of a conditional node takes kernels, copies and fills only. Make the call before it"
    for refused, error, message in (
        (lambda: launch_host(stream, lambda: None), "orErrorStreamCaptureUnsupported", text),
        (lambda: record_and_join(stream, side, event), "orErrorStreamCaptureUnjoined", "unjoined work"),
    ):
        begin(stream)
        call("orStreamBeginConditional", stream, memory, 1)

        def in_body(refused: Callable[[], object] = refused) -> None:
            refused()
            call("orStreamEndConditional", stream)

        name, found = fails(in_body)
        assert name == error and message in found
        assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


def test_an_empty_graph_can_be_launched(mode: str, stream: int) -> None:
    with Graph(stream) as graph:
        pass
    graph.replay()
    launch(stream, lambda: None)
    synchronize(stream)
    graph.destroy()


def test_the_objects_of_a_graph_live_until_no_launch_needs_them(mode: str, stream: int) -> None:
    destroyed: list[int] = []
    destroy = HostFn(lambda value: destroyed.append(value or 0))
    kept.append(destroy)
    state, graph = ctypes.c_int(), ctypes.c_void_p()
    with Graph(stream) as made:
        call("orStreamGetCaptureInfo", stream, ctypes.byref(state), None, ctypes.byref(graph))
        call("orGraphRetainUserObject", graph, 5, destroy)
        launch(stream, lambda: None)
    assert (state.value, graph.value) == (ACTIVE, made.graph)
    call("orGraphDestroy", made.graph)
    made.replay()
    synchronize(stream)
    assert destroyed == []
    call("orGraphExecDestroy", made.exec)
    assert destroyed == [5]


def test_subscribers_see_a_replay_and_no_capture(
    mode: str, stream: int, other: int, memory: int, make_event: Any
) -> None:
    fork, join = make_event(), make_event()
    with Observer(CALL | KERNEL | FILL | COPY) as seen:
        with Graph(stream) as graph:
            record(fork, stream)
            wait_event(other, fork)
            launch(stream, lambda: None)
            call("orMemsetAsync", memory, 1, 8, other)
            record(join, other)
            wait_event(stream, join)
        assert seen.events == []
        graph.replay()
        synchronize(stream)
    calls = [event for event in seen.events if event[0] == CALL]
    work = {event[0] for event in seen.events if event[0] != CALL}
    assert [event[5] for event in calls] == ["orGraphLaunch"] * 2
    assert work == {KERNEL, FILL}
    assert {event[4] for event in seen.events} == {stream}
    of_work = [c for event, c in zip(seen.events, seen.correlations, strict=True) if event[0] != CALL]
    assert of_work == [calls[0][2]] * 4
    graph.destroy()


def test_subscribers_hear_of_each_node_at_the_capture_and_of_its_launch_at_each_replay(
    mode: str, stream: int, memory: int
) -> None:
    with Observer(NODE | LAUNCH) as seen:
        with Graph(stream) as graph:
            launch(stream, lambda: None)
            call("orMemsetAsync", memory, 1, 8, stream)
        nodes = [(name, operands) for kind, _, _, _, _, name, _, operands in seen.events if kind == NODE]
        assert nodes == [("kernel", []), ("memset", [(memory, memory + 8, 2)])] and len(seen.events) == 2
        for _ in range(2):
            graph.replay()
        synchronize(stream)
    launches = [(name, operands) for kind, _, _, _, _, name, _, operands in seen.events if kind == LAUNCH]
    assert launches == nodes * 2
    graph.destroy()


def test_a_graph_is_written_as_dot(stream: int, memory: int, tmp_path: Path) -> None:
    with Graph(stream) as graph:
        launch(stream, lambda: None)
        call("orMemsetAsync", memory, 1, 8, stream)
    path = tmp_path / "graph.dot"
    call("orGraphDebugDotPrint", graph.graph, str(path).encode(), 0)
    assert path.read_text() == (
        "digraph openreg {\n"
        '  n0 [label="0 kernel\\ndevice 0" shape=box];\n'
        '  n1 [label="1 memset\\ndevice 0"];\n'
        "  n0 -> n1;\n"
        "}\n"
    )
    assert fails(lambda: call("orGraphDebugDotPrint", graph.graph, b"/proc/no", 0))[0] == "orErrorOperatingSystem"
    graph.destroy()


# ---- what a capture refuses


@pytest.mark.parametrize("capture_mode", [GLOBAL, THREAD_LOCAL, RELAXED])
@pytest.mark.parametrize("name", ["orStreamSynchronize", "orStreamQuery", "orStreamDestroy"])
def test_a_call_that_asks_for_the_state_of_the_stream_invalidates(
    mode: str, stream: int, name: str, capture_mode: int
) -> None:
    begin(stream, capture_mode)
    launch(stream, lambda: None)
    assert status(stream) == ACTIVE
    destroys = PERMITTED + "the stream belongs to a capture. Destroy it after the capture"
    text = f"{name}: {destroys if name == 'orStreamDestroy' else STATE}"
    assert fails(lambda: call(name, stream)) == ("orErrorStreamCaptureUnsupported", text)
    assert status(stream) == INVALIDATED
    for function, inner in (
        (lambda: launch(stream, lambda: None), "orLaunch"),
        (lambda: call(name, stream), name),
        (lambda: end(stream), "orStreamEndCapture"),
    ):
        assert fails(function) == (
            "orErrorStreamCaptureInvalidated",
            f"{inner}: operation failed due to a previous error during capture: {text}",
        )
    assert status(stream) == NONE
    synchronize(stream)


def test_pageable_memory_is_refused(mode: str, stream: int, memory: int) -> None:
    begin(stream)
    data = ctypes.create_string_buffer(8)
    assert fails(lambda: copy_async(data, memory, 8, stream)) == (
        "orErrorStreamCaptureUnsupported",
        f"orMemcpyAsync: {PERMITTED}a copy from or to pageable memory cannot become part of a graph. Use pinned memory "
        "(orMallocHost, orHostRegister)",
    )
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


def test_a_copy_that_waits_is_refused(mode: str, stream: int, memory: int) -> None:
    begin(stream)
    assert fails(lambda: call("orMemcpyWithStream", memory, memory + 4, 4, DEFAULT, stream)) == (
        "orErrorStreamCaptureUnsupported",
        f"orMemcpyWithStream: {PERMITTED}the call waits for the copy. Use orMemcpyAsync",
    )
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


def test_work_that_can_run_only_once_is_refused(mode: str, stream: int) -> None:
    text = PERMITTED + "the work can run only once, and a graph runs it at each launch"
    begin(stream)
    assert fails(lambda: launch(stream, lambda: None, ONCE)) == (
        "orErrorStreamCaptureUnsupported",
        f"orLaunch: {text}",
    )
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


@pytest.mark.parametrize("persistent", [False, True])
def test_a_kernel_that_the_calling_thread_computes_is_refused(mode: str, stream: int, persistent: bool) -> None:
    on = get_pointer("orStreamCreateWithPriority", 1, 0) if persistent else stream
    scope, what = KernelScope(), Kernel(b"k")
    begin(on)
    assert fails(lambda: call("orKernelBegin", ctypes.byref(scope), on, ctypes.byref(what))) == (
        "orErrorStreamCaptureUnsupported",
        f"orKernelBegin: {PERMITTED}k is computed on the calling thread, which is not supported in a capture yet. Call "
        "it before the capture or after it",
    )
    assert fails(lambda: end(on))[0] == "orErrorStreamCaptureInvalidated"
    call("orKernelBegin", ctypes.byref(scope), on, ctypes.byref(what))
    lib.orKernelEnd(ctypes.byref(scope), False)
    synchronize(on)


@pytest.mark.parametrize("name", ["orEventQuery", "orEventSynchronize"])
def test_the_state_of_an_event_of_a_capture_is_refused_also_after_the_capture(
    mode: str, stream: int, make_event: Callable[..., int], name: str
) -> None:
    event = make_event()
    refused = (
        "orErrorCapturedEvent",
        f"{name}: operation not permitted on an event last recorded in a capturing stream: it stands for no moment of "
        "the device. Record it with orEventRecordExternal, or outside of the capture",
    )
    with Graph(stream) as graph:
        record(event, stream)
    assert fails(lambda: call(name, event)) == refused
    assert fails(lambda: wait_event(stream, event)) == (
        "orErrorCapturedEvent",
        "orStreamWaitEvent: the event was last recorded in a capture, which has ended; record it again",
    )
    graph.destroy()
    begin(stream)
    record(event, stream)
    assert fails(lambda: call(name, event)) == refused
    assert status(stream) == INVALIDATED
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"
    record(event, stream)
    call("orEventSynchronize", event)


def test_an_event_of_work_outside_of_the_capture_is_refused(
    mode: str, stream: int, other: int, make_event: Callable[..., int]
) -> None:
    never, done = make_event(), make_event()
    record(done, other)
    begin(stream)
    wait_event(stream, never)
    assert fails(lambda: wait_event(stream, done)) == (
        "orErrorStreamCaptureIsolation",
        "orStreamWaitEvent: dependency created on uncaptured work in another stream: the event was recorded outside of "
        "the capture; wait for it before "
        "the capture begins",
    )
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


def test_two_captures_cannot_be_joined(mode: str, stream: int, other: int, make_event: Callable[..., int]) -> None:
    event = make_event()
    begin(stream)
    begin(other)
    record(event, stream)
    assert fails(lambda: wait_event(other, event)) == (
        "orErrorStreamCaptureMerge",
        "orStreamWaitEvent: operation would result in a merge of separate capture sequences: the event belongs to "
        "another capture than the stream",
    )
    for each in (stream, other):
        assert fails(lambda each=each: end(each))[0] == "orErrorStreamCaptureInvalidated"


def test_a_default_stream_is_not_captured(mode: str, stream: int, make_event: Callable[..., int]) -> None:
    default = get_pointer("orDeviceGetDefaultStream", 0)
    for handle in (None, default):
        assert fails(lambda handle=handle: call("orStreamBeginCapture", handle, GLOBAL)) == (
            "orErrorStreamCaptureUnsupported",
            f"orStreamBeginCapture: {PERMITTED}a default stream cannot be captured; use another stream",
        )
    event = make_event()
    begin(stream)
    record(event, stream)
    assert fails(lambda: wait_event(None, event))[0] == "orErrorStreamCaptureImplicit"
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


def test_work_of_another_stream_must_be_joined(
    mode: str, stream: int, other: int, make_event: Callable[..., int]
) -> None:
    ran: list[int] = []
    event = make_event()
    begin(stream)
    record(event, stream)
    wait_event(other, event)
    assert status(other) == ACTIVE
    launch(other, lambda: ran.append(1))
    assert fails(lambda: end(other)) == (
        "orErrorStreamCaptureUnmatched",
        "orStreamEndCapture: capture was not ended in the same stream as it began: the stream has joined the capture of "
        "another stream",
    )
    assert fails(lambda: end(stream)) == (
        "orErrorStreamCaptureUnjoined",
        f"orStreamEndCapture: capturing stream has unjoined work: record an event on stream {other:#x}, and make the "
        "stream on which the capture began wait for the event",
    )
    assert (status(stream), status(other)) == (NONE, NONE)
    launch(other, lambda: ran.append(2))
    synchronize(other)
    assert ran == [2]


def test_a_capture_begins_and_ends_once(mode: str, stream: int) -> None:
    assert fails(lambda: end(stream))[0] == "orErrorIllegalState"
    begin(stream)
    assert fails(lambda: begin(stream))[0] == "orErrorIllegalState"
    graph = ctypes.c_void_p()
    call("orStreamGetCaptureInfo", stream, ctypes.byref(ctypes.c_int()), None, ctypes.byref(graph))
    assert fails(lambda: get_pointer("orGraphInstantiate", graph, 0))[0] == "orErrorIllegalState"
    call("orGraphDestroy", end(stream))


@pytest.mark.parametrize("capture_mode", [GLOBAL, RELAXED])
def test_only_a_relaxed_capture_ends_on_another_thread(mode: str, stream: int, capture_mode: int) -> None:
    begin(stream, capture_mode)
    codes: list[int] = []
    graph = ctypes.c_void_p()
    in_thread(lambda: codes.append(lib.orStreamEndCapture(stream, ctypes.byref(graph)))).join()
    assert codes == [0 if capture_mode == RELAXED else 908]
    if capture_mode == GLOBAL:
        graph.value = end(stream)
    call("orGraphDestroy", graph)


def test_the_whole_device_cannot_be_asked(mode: str, stream: int, make_stream: Callable[..., int]) -> None:
    begin(stream, RELAXED)
    call("orSetDevice", 1)
    call("orDeviceSynchronize")
    assert status(stream) == ACTIVE
    call("orSetDevice", 0)
    assert fails(lambda: call("orDeviceSynchronize"))[0] == "orErrorStreamCaptureUnsupported"
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"
    begin(stream, RELAXED)
    assert fails(lambda: call("orSetExecutionMode", MODES[mode], 0))[0] == "orErrorStreamCaptureUnsupported"
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"


# ---- unsafe calls


def unsafe(pointer: int, other: int, event: int, pinned: int) -> dict[str, Callable[[], None]]:
    buffer = ctypes.create_string_buffer(4096)
    return {
        "orMalloc": lambda: call("orFree", malloc(8)),
        "orMallocHost": lambda: call("orFreeHost", get_pointer("orMallocHost", 8)),
        "orHostRegister": lambda: (call("orHostRegister", buffer, 8), call("orHostUnregister", buffer))[0],
        "orMemcpy": lambda: call("orMemcpy", pointer, pinned, 8, DEFAULT),
        "orMemset": lambda: call("orMemset", pointer, 0, 8),
        "orStreamSynchronize": lambda: call("orStreamSynchronize", other),
        "orStreamQuery": lambda: call("orStreamQuery", other),
        "orEventQuery": lambda: call("orEventQuery", event),
        "orEventSynchronize": lambda: call("orEventSynchronize", event),
    }


@pytest.mark.parametrize("name", list(unsafe(0, 0, 0, 0)))
def test_an_unsafe_call_is_refused_by_the_captures_that_its_mode_names(
    stream: int, other: int, memory: int, pinned: int, make_event: Callable[..., int], name: str
) -> None:
    event = make_event()
    function = unsafe(memory, other, event, pinned)[name]

    def is_refused(capture_mode: int, thread_mode: int, on_another_thread: bool) -> bool:
        begin(stream, capture_mode)
        outcome: list[str] = []

        def attempt() -> None:
            mode = ctypes.c_int(thread_mode)
            call("orThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            assert mode.value == GLOBAL
            try:
                function()
                outcome.append("")
            except OpenRegError as error:
                outcome.append(error.name)
            mode.value = GLOBAL
            call("orThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            assert mode.value == thread_mode

        if on_another_thread:
            in_thread(attempt).join()
        else:
            attempt()
        assert outcome in ([""], ["orErrorStreamCaptureUnsupported"])
        assert status(stream) == (ACTIVE if outcome == [""] else INVALIDATED)
        if outcome == [""]:
            call("orGraphDestroy", end(stream))
        else:
            assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"
        return outcome != [""]

    here = {(c, t): is_refused(c, t, False) for c in range(3) for t in range(3)}
    assert {key for key, refused in here.items() if refused} == {
        (capture, thread) for capture in (GLOBAL, THREAD_LOCAL) for thread in (GLOBAL, THREAD_LOCAL)
    }
    elsewhere = {(c, t): is_refused(c, t, True) for c in range(3) for t in range(3)}
    assert {key for key, refused in elsewhere.items() if refused} == {(GLOBAL, GLOBAL)}


def test_a_refused_free_frees_nothing_and_names_the_capture(stream: int) -> None:
    pointer = malloc(8)
    begin(stream)
    assert fails(lambda: call("orFree", pointer)) == (
        "orErrorStreamCaptureUnsupported",
        f"orFree: {PERMITTED}the call may wait for the device, and this thread captures a stream of device 0 in the mode "
        "global. Make the call before the capture or after it, or in the mode relaxed "
        "(orThreadExchangeStreamCaptureMode)",
    )
    assert fails(lambda: end(stream))[0] == "orErrorStreamCaptureInvalidated"
    call("orFree", pointer)


# ---- C++


@pytest.mark.parametrize("execution", ["inline", "async", "chaos"])
def test_a_c_plus_plus_launch_is_captured_with_copies_of_its_arguments(tmp_path: Path, execution: str) -> None:
    source = """
    #include <cstdio>
    #include <memory>
    #include <string>
    #include "openreg_launch.h"

    struct Tell {
      std::string text;
      ~Tell() { if (!text.empty()) std::puts("gone"); }
      Tell(std::string text) : text(std::move(text)) {}
      Tell(Tell&&) = default;
      Tell(const Tell& other) = default;
      void operator()(const std::string& word) const { std::printf("%s %s\\n", text.c_str(), word.c_str()); }
    };

    int main() {
      orStream_t stream;
      orGraph_t graph;
      orGraphExec_t exec;
      orStreamCreate(&stream);
      orStreamBeginCapture(stream, orStreamCaptureModeGlobal);
      {
        std::string word = "captured word that is long enough for the heap";
        orLaunchKernel(stream, Tell("a"), word);
      }
      orStreamEndCapture(stream, &graph);
      orGraphInstantiate(&exec, graph, 0);
      orGraphDestroy(graph);
      orGraphLaunch(exec, stream);
      orGraphLaunch(exec, stream);
      orStreamSynchronize(stream);
      orGraphExecDestroy(exec);
      orStreamBeginCapture(stream, orStreamCaptureModeGlobal);
      const auto consume = [](std::unique_ptr<int>) {};
      std::printf("%d\\n", orLaunchKernel(stream, consume, std::make_unique<int>(1)));
      std::printf("%d\\n", orStreamEndCapture(stream, &graph));
      std::printf("%d\\n", orLaunchKernel(stream, consume, std::make_unique<int>(1)));
      orStreamSynchronize(stream);
    }
    """
    program = compile_program(cpp_compiler(), tmp_path, source)
    line = "a captured word that is long enough for the heap\n"
    assert run_program(program, OPENREG_EXECUTION=execution) == f"{line}{line}gone\n900\n901\n0\n"


def test_a_forked_child_of_a_process_that_captures_gets_the_childs_error() -> None:
    code = """
    import os
    stream = get_pointer("orStreamCreate")
    call("orStreamBeginCapture", stream, 0)
    pid = os.fork()
    if pid == 0:
        print(lib.orStreamIsCapturing(stream, ctypes.byref(ctypes.c_int())), lib.orFree(0), flush=True)
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
    """
    assert output_of(code) == "3 0\n0"
