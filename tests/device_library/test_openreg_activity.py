"""openreg_activity.h: what a subscriber is told of kernels, copies, fills, memory and the calls of the host."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openreg_c import (
    ALL_ACTIVITIES,
    ASYNC,
    BEGIN,
    CALL,
    COPY,
    DEFAULT,
    END,
    FILL,
    FREE,
    KERNEL,
    POINT,
    READ,
    SYNCHRONIZATION,
    WRITE,
    HostFn,
    Kernel,
    KernelScope,
    Observer,
    OpenRegError,
    Operand,
    OperandsFn,
    call,
    get_pointer,
    lib,
    malloc,
)
from openreg_process import compile_program, cpp_compiler, raises, run_program
from openreg_work import in_thread, kernel

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- What is told ----------------------------------------------------------------------------------------------------


def test_every_activity_is_told_with_its_operands(mode: str, stream: int) -> None:
    sizes, strides = (ctypes.c_int64 * 1)(2), (ctypes.c_int64 * 1)(16)
    with Observer() as observer:
        memory = malloc(64)

        def operands(_: int | None, visit: Callable[..., None], context: int | None) -> None:
            operand = Operand(memory, 4, 1, sizes, strides, WRITE)
            visit(ctypes.byref(operand), context)

        tells = OperandsFn(operands)
        what = Kernel(b"mine", tells, None)
        nothing = HostFn(lambda _: None)
        call("orMemsetAsync", memory, 1, 64, stream)
        call("orMemcpyAsync", memory + 32, memory, 8, DEFAULT, stream)
        call("orLaunchDescribed", stream, nothing, None, 0, ctypes.byref(what))
        call("orLaunch", stream, nothing, None, 0)
        call("orLaunchHostFunc", stream, nothing, None)
        call("orStreamSynchronize", stream)
        lib.orNoteAllocation(memory, 16, stream)
        scope = KernelScope()
        call("orKernelBegin", ctypes.byref(scope), stream, ctypes.byref(what))
        lib.orKernelEnd(ctypes.byref(scope), True)
        call("orFree", memory)
    ids = [event[2] for event in observer.events]
    mine = [(memory, memory + 4, WRITE), (memory + 16, memory + 20, WRITE)]
    assert [event[:2] + event[3:] for event in observer.events] == [
        (8, POINT, 0, None, "orMalloc", False, [(memory, memory + 64, 0)]),
        (FILL, BEGIN, 0, stream, "memset", False, [(memory, memory + 64, WRITE)]),
        (FILL, END, 0, stream, "memset", False, []),
        (COPY, BEGIN, 0, stream, "memcpy", False, [(memory + 32, memory + 40, WRITE), (memory, memory + 8, READ)]),
        (COPY, END, 0, stream, "memcpy", False, []),
        (KERNEL, BEGIN, 0, stream, "mine", False, mine),
        (KERNEL, END, 0, stream, "mine", False, []),
        (KERNEL, BEGIN, 0, stream, "kernel", False, []),
        (KERNEL, END, 0, stream, "kernel", False, []),
        (8, POINT, 0, stream, "orNoteAllocation", False, [(memory, memory + 16, 0)]),
        (KERNEL, BEGIN, 0, stream, "mine", False, mine),
        (KERNEL, END, 0, stream, "mine", True, []),
        (FREE, POINT, 0, None, "orFree", False, [(memory, memory + 64, 0)]),
    ]
    assert ids[1] == ids[2] and ids[10] == ids[11] and len(set(ids)) == 8


def test_a_kernel_that_throws_is_told_as_failed(tmp_path: Path) -> None:
    source = r"""
    #include <cstdio>
    #include <stdexcept>
    #include "openreg_activity.h"
    #include "openreg_launch.h"
    int main() {
      orSubscriber_t subscriber = nullptr;
      orActivitySubscribe(&subscriber, [](const orActivity* a, void*) {
        std::printf("%s %d %d\n", a->name, a->phase, a->failed);
      }, nullptr, orActivityKernel);
      orLaunchKernel(nullptr, {"good", {}}, [] {});
      orLaunchKernel(nullptr, {"bad", {}}, [] { throw std::runtime_error("no"); });
    }
    """
    program = compile_program(cpp_compiler(), tmp_path, source)
    assert run_program(program) == "good 0 0\ngood 1 0\nbad 0 0\nbad 1 1\n"


def test_a_subscriber_gets_the_kinds_that_it_asked_for_until_it_leaves(stream: int) -> None:
    memory = malloc(8)
    with Observer(FILL) as first, Observer(COPY | FILL) as second:
        call("orMemset", memory, 0, 8)
        call("orMemcpy", memory, memory + 4, 4, DEFAULT)
    call("orMemset", memory, 0, 8)
    assert [event[0] for event in first.events] == [FILL, FILL]
    assert [event[0] for event in second.events] == [FILL, FILL, COPY, COPY]
    call("orFree", memory)


def test_subscribers_that_have_left_are_used_again_in_the_order_of_subscription() -> None:
    memory, order = malloc(8), []

    class Named(Observer):
        def __init__(self, name: str) -> None:
            super().__init__(FILL)
            self.name = name

        def _told(self, pointer: object, data: int | None) -> None:
            order.append(self.name)

    handles = set()
    early = Named("early")
    early.__enter__()
    with Named("before"):
        early.__exit__()  # frees a subscriber's place before that of "before"
        for _ in range(10):
            with Named("after") as after:
                order.clear()
                call("orMemset", memory, 0, 8)
                assert order == ["before", "after"] * 2  # told of the begin, and of the end
                handles.add(after.handle)
    assert len(handles) == 1
    order.clear()
    call("orMemset", memory, 0, 8)
    assert order == []
    call("orFree", memory)


def test_what_a_subscriber_starts_itself_is_not_told() -> None:
    memory, seen = malloc(8), []

    class Nested(Observer):
        def _told(self, pointer: object, data: int | None) -> None:
            seen.append(1)
            call("orFree", malloc(8))

    with Nested():
        call("orMemset", memory, 0, 8)
    assert len(seen) == 2
    call("orFree", memory)


def test_what_a_subscriber_calls_leaves_the_threads_last_failure_alone(stream: int) -> None:
    memory = malloc(8)

    class Fails(Observer):
        def _told(self, pointer: Any, data: int | None) -> None:
            assert lib.orFree(1) != 0

    with Fails(ALL_ACTIVITIES):
        before = lib.orPeekAtLastError(), lib.orGetLastErrorMessage()
        call("orMemset", memory, 0, 8)
        assert (lib.orPeekAtLastError(), lib.orGetLastErrorMessage()) == before
        with pytest.raises(
            OpenRegError, match="^orErrorInvalidValue: orMemcpyAsync: .* reach past the end of the allocation"
        ):
            call("orMemcpyAsync", memory, memory, 1 << 20, DEFAULT, stream)
    call("orFree", memory)


def test_what_a_subscriber_queues_is_not_told_when_it_runs(stream: int) -> None:
    memory, copied = malloc(8), ctypes.create_string_buffer(8)
    call("orSetExecutionMode", ASYNC, 0)

    class Queues(Observer):
        def _told(self, pointer: Any, data: int | None) -> None:
            super()._told(pointer, data)
            call("orMemsetAsync", memory, 7, 8, stream)

    with Observer(FILL) as observer, Queues(CALL) as queues:
        call("orFree", malloc(8))
        call("orStreamSynchronize", stream)
    assert [event[5] for event in queues.events] == ["orMalloc", "orMalloc", "orFree", "orFree"]
    assert observer.events == []
    call("orMemcpy", copied, memory, 8, DEFAULT)
    assert copied.raw == b"\x07" * 8
    call("orFree", memory)


def test_unsubscribing_waits_for_a_call_that_is_under_way(stream: int) -> None:
    entered, leave, left = threading.Event(), threading.Event(), []

    class Slow(Observer):
        def _told(self, pointer: object, data: int | None) -> None:
            if not entered.is_set():
                entered.set()
                leave.wait()
                left.append(1)

    slow = Slow(KERNEL)
    slow.__enter__()

    def run() -> None:
        with kernel(stream):
            pass

    thread = in_thread(run)
    entered.wait()
    threading.Timer(0.1, leave.set).start()
    slow.__exit__()
    assert left == [1]
    thread.join()


def test_bad_arguments_of_a_subscription_are_errors() -> None:
    handle = ctypes.c_void_p()
    fn = Observer()._tell
    with raises("orErrorInvalidValue", "orActivitySubscribe: subscriber is NULL"):
        call("orActivitySubscribe", None, fn, None, KERNEL)
    for kinds in (0, 2048):
        message = f"orActivitySubscribe: kinds is {kinds}; join values of orActivityKind, or pass orActivityAll"
        with raises("orErrorInvalidValue", message):
            call("orActivitySubscribe", ctypes.byref(handle), fn, None, kinds)
    with raises("orErrorInvalidResourceHandle", "orActivityUnsubscribe: subscriber 0x10 does not exist"):
        call("orActivityUnsubscribe", 0x10)
    observer = Observer()
    with observer:
        pass
    message = f"orActivityUnsubscribe: subscriber {observer.handle:#x} does not exist"
    with raises("orErrorInvalidResourceHandle", message):
        call("orActivityUnsubscribe", observer.handle)


# ---- Calls of the host, and what they start --------------------------------------------------------------------------


def test_what_a_call_starts_has_its_id(stream: int) -> None:
    memory = malloc(64)
    nothing = HostFn(lambda _: None)
    call("orSetExecutionMode", ASYNC, 0)
    with Observer(ALL_ACTIVITIES) as observer:
        call("orMemsetAsync", memory, 1, 64, stream)
        call("orLaunch", stream, nothing, None, 0)
        call("orStreamSynchronize", stream)
        call("orMemcpy", memory, memory + 32, 8, DEFAULT)
    call("orFree", memory)
    begun = [
        (kind, name, number, correlation)
        for (kind, phase, number, _, _, name, *_), correlation in zip(
            observer.events, observer.correlations, strict=True
        )
        if phase == BEGIN
    ]
    calls = {name: number for kind, name, number, _ in begun if kind == CALL}
    assert list(calls) == ["orMemsetAsync", "orLaunch", "orMemcpy"]
    assert [name for kind, name, *_ in begun if kind == SYNCHRONIZATION] == ["orStreamSynchronize"]
    assert {(kind, correlation) for kind, _, _, correlation in begun if kind not in (CALL, SYNCHRONIZATION)} == {
        (FILL, calls["orMemsetAsync"]),
        (KERNEL, calls["orLaunch"]),
        (COPY, calls["orMemcpy"]),
    }


def test_a_kernel_that_its_own_thread_begins_has_no_call(stream: int) -> None:
    memory = malloc(64)
    with Observer(ALL_ACTIVITIES) as observer, kernel(stream):
        call("orMemcpyAsync", memory, memory + 32, 8, DEFAULT, stream)
    call("orFree", memory)
    told = [(event[0], event[1]) for event in observer.events]
    assert told == [(KERNEL, BEGIN), (CALL, BEGIN), (COPY, BEGIN), (COPY, END), (CALL, END), (KERNEL, END)]
    number = observer.events[1][2]
    assert observer.correlations == [0, 0, number, number, 0, 0]


def test_each_call_is_told_where_it_ends_and_of_which_device_and_stream(stream: int) -> None:
    event = get_pointer("orEventCreate")
    with Observer(CALL | SYNCHRONIZATION) as observer:
        memory = malloc(64)
        pinned = get_pointer("orMallocHost", 64)
        call("orEventRecord", event, stream)
        call("orStreamWaitEvent", stream, event, 0)
        call("orEventSynchronize", event)
        call("orDeviceSynchronize")
        call("orStreamAwaitLaunch", stream)
        call("orMemcpyWithStream", memory, pinned, 8, DEFAULT, stream)
        call("orFree", memory)
        call("orFreeHost", pinned)
        call("orStreamQuery", stream)
        call("orEventQuery", event)
        call("orSetDevice", 0)
    call("orEventDestroy", event)
    told = [(name, kind, device, its) for kind, phase, _, device, its, name, *_ in observer.events if phase == BEGIN]
    assert told == [
        ("orMalloc", CALL, 0, None),
        ("orMallocHost", CALL, 0, None),
        ("orEventRecord", CALL, 0, stream),
        ("orStreamWaitEvent", SYNCHRONIZATION, 0, stream),
        ("orEventSynchronize", SYNCHRONIZATION, 0, stream),
        ("orDeviceSynchronize", SYNCHRONIZATION, 0, None),
        ("orStreamAwaitLaunch", SYNCHRONIZATION, 0, stream),
        ("orMemcpyWithStream", CALL, 0, stream),
        ("orFree", CALL, 0, None),
        ("orFreeHost", CALL, 0, None),
    ]
    ended = [(name, kind, device, its) for kind, phase, _, device, its, name, *_ in observer.events if phase == END]
    assert ended == told
