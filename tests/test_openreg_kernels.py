"""The door that every kernel passes, and the turn of a stream: orKernelBegin, orLaunch and openreg_activity.h."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from openreg_c import (
    ALL_ACTIVITIES,
    ASYNC,
    BEGIN,
    CALL,
    CHAOS,
    COPY,
    DEFAULT,
    END,
    FILL,
    FREE,
    INLINE,
    KERNEL,
    NO_WAIT,
    PERSISTENT,
    POINT,
    READ,
    SYNCHRONIZATION,
    WRITE,
    AfterWaitFn,
    BeforeWaitFn,
    HostFn,
    Kernel,
    KernelScope,
    Observer,
    Operand,
    OperandsFn,
    call,
    get_pointer,
    lib,
    malloc,
    upload,
)
from openreg_process import compile_program, cpp_compiler, output_of, raises, run_program

MODES = pytest.mark.parametrize("mode", [INLINE, ASYNC, CHAOS], ids=["inline", "async", "chaos"])


@pytest.fixture(autouse=True)
def back_to_inline() -> Iterator[None]:
    yield
    call("orDeviceSynchronize")
    call("orSetExecutionMode", INLINE, 0)


@pytest.fixture
def other() -> Iterator[int]:
    handle = get_pointer("orStreamCreate")
    yield handle
    call("orStreamDestroy", handle)


class kernel:
    """A kernel of the calling thread, as a context manager."""

    def __init__(self, stream: int | None, name: bytes = b"k") -> None:
        self.stream = stream
        self.what = Kernel(name, OperandsFn(), None)
        self.scope = KernelScope()

    def __enter__(self) -> kernel:
        call("orKernelBegin", ctypes.byref(self.scope), self.stream, ctypes.byref(self.what))
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        lib.orKernelEnd(ctypes.byref(self.scope), kind is not None)


def in_thread(fn: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=fn)
    thread.start()
    return thread


def stays_alive(thread: threading.Thread) -> bool:
    thread.join(0.1)
    return thread.is_alive()


# ---- the turn


@MODES
def test_a_kernel_waits_until_another_threads_kernel_on_the_stream_has_ended(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    order = []

    def second() -> None:
        with kernel(stream):
            order.append("second")

    with kernel(stream):
        thread = in_thread(second)
        assert stays_alive(thread)
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


@MODES
@pytest.mark.parametrize("what", ["launch", "fill", "copy"])
def test_what_another_thread_starts_on_the_stream_waits_for_the_kernel(stream: int, mode: int, what: str) -> None:
    call("orSetExecutionMode", mode, 1)
    memory = malloc(64)
    ran = threading.Event()
    fn = HostFn(lambda _: ran.set())

    def start() -> None:
        if what == "launch":
            call("orLaunch", stream, fn, None, 0)
        elif what == "fill":
            call("orMemsetAsync", memory, 1, 64, stream)
        else:
            call("orMemcpyAsync", memory + 32, memory, 32, DEFAULT, stream)

    with kernel(stream):
        thread = in_thread(start)
        assert stays_alive(thread) and not ran.is_set()
    thread.join()
    call("orStreamSynchronize", stream)
    assert ran.is_set() == (what == "launch")
    call("orFree", memory)


@MODES
def test_a_kernel_waits_for_what_is_queued(stream: int, mode: int) -> None:
    call("orSetExecutionMode", ASYNC, 0)  # so that there is something to wait for
    gate, order = threading.Event(), []
    fn = HostFn(lambda _: (gate.wait(), order.append("queued")))
    call("orLaunch", stream, fn, None, 0)
    timer = threading.Timer(0.1, gate.set)
    timer.start()
    with kernel(stream):
        order.append("kernel")
    assert order == ["queued", "kernel"]


@MODES
def test_what_the_thread_that_has_the_turn_starts_runs_at_once(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    memory, ran = malloc(8), []
    event = get_pointer("orEventCreate")
    fn = HostFn(lambda _: ran.append(threading.get_ident()))
    with kernel(stream):
        call("orLaunch", stream, fn, None, 0)
        assert ran == [threading.get_ident()]
        call("orMemsetAsync", memory, 7, 8, stream)
        host = ctypes.create_string_buffer(8)
        call("orMemcpyWithStream", host, memory, 8, DEFAULT, stream)
        assert host.raw == b"\x07" * 8
        call("orEventRecord", event, stream)
        call("orEventQuery", event)
        call("orEventSynchronize", event)
        call("orStreamWaitEvent", stream, event, 0)
        call("orStreamQuery", stream)
        call("orStreamSynchronize", stream)
        call("orDeviceSynchronize")
        with kernel(stream):  # a kernel within a kernel
            call("orLaunch", stream, fn, None, 0)
    assert len(ran) == 2
    call("orEventDestroy", event)
    call("orFree", memory)


@MODES
def test_a_kernel_that_waits_for_an_event_of_another_stream_waits(stream: int, other: int, mode: int) -> None:
    call("orSetExecutionMode", ASYNC, 0)
    gate, done = threading.Event(), []
    fn = HostFn(lambda _: (gate.wait(), done.append(1)))
    event = get_pointer("orEventCreate")
    call("orLaunch", other, fn, None, 0)
    call("orEventRecord", event, other)
    threading.Timer(0.05, gate.set).start()
    with kernel(stream):
        call("orStreamWaitEvent", stream, event, 0)
        assert done == [1]
    call("orEventDestroy", event)


@MODES
def test_an_event_that_another_thread_records_during_a_kernel_comes_after_it(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    event = get_pointer("orEventCreate")
    with kernel(stream):
        thread = in_thread(lambda: call("orEventRecord", event, stream))
        thread.join(10)
        assert not thread.is_alive()  # it is queued
        assert lib.orEventQuery(event) == 600
    call("orEventSynchronize", event)
    call("orEventQuery", event)
    call("orEventDestroy", event)


@MODES
def test_two_threads_whose_kernels_want_each_others_streams_both_end(stream: int, other: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    both = threading.Barrier(2)
    ended = []

    def work(mine: int, theirs: int) -> None:
        with kernel(mine):
            both.wait()
            with kernel(theirs):
                pass
            fn = HostFn(lambda _: None)
            call("orLaunch", theirs, fn, None, 0)
            kept.append(fn)
        ended.append(mine)

    kept: list[object] = []
    for _ in range(20):
        threads = [in_thread(lambda: work(stream, other)), in_thread(lambda: work(other, stream))]
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    call("orDeviceSynchronize")
    assert len(ended) == 40


def test_three_threads_in_a_circle_end(stream: int, other: int) -> None:
    third = get_pointer("orStreamCreate")
    streams = [stream, other, third]
    all_three = threading.Barrier(3)

    def work(i: int) -> None:
        with kernel(streams[i]):
            all_three.wait()
            with kernel(streams[(i + 1) % 3]):
                pass

    for _ in range(20):
        threads = [in_thread(lambda i=i: work(i)) for i in range(3)]
        for thread in threads:
            thread.join(30)
            assert not thread.is_alive()
    call("orStreamDestroy", third)


COUNT = r"""
#include <cstdio>
#include <thread>
#include <vector>
#include "openreg.h"
#include "openreg_launch.h"

// Without a turn, threads that add to one plain number lose some.
int main() {
  constexpr int kThreads = 4, kRounds = 20000;
  orStream_t stream = nullptr, other = nullptr;
  orStreamCreateWithPriority(&stream, orStreamPersistent, 0);
  orStreamCreate(&other);
  volatile long sum[2] = {0, 0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < kRounds; ++round) {
        const bool second = (round + i) % 3 == 0;
        const orStream_t on = second ? other : stream;
        volatile long* to = &sum[second];
        if (round % 7 == 0) {
          orLaunchKernel(on, [to] { *to = *to + 1; });
        } else {
          orKernel kernel{"count", nullptr, nullptr};
          orKernelScope scope;
          if (orKernelBegin(&scope, on, &kernel) != orSuccess) std::puts(orGetLastErrorMessage());
          *to = *to + 1;
          orKernelEnd(&scope, false);
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  orDeviceSynchronize();
  std::printf("%ld\n", sum[0] + sum[1] - kThreads * kRounds);
}
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_kernels_and_launches_of_several_threads_never_overlap_on_a_stream(tmp_path: Path, mode: str) -> None:
    source = COUNT.replace("20000", "400") if mode == "chaos" else COUNT
    program = compile_program(cpp_compiler(), tmp_path, source)
    assert run_program(program, OPENREG_EXECUTION=mode) == "0\n"


def test_a_launch_that_may_not_wait_says_that_it_would(stream: int) -> None:
    ran = []
    fn = HostFn(lambda _: ran.append(1))
    codes = []
    with kernel(stream):
        in_thread(lambda: codes.append(lib.orLaunch(stream, fn, None, NO_WAIT))).join()
    assert (codes, ran) == ([600], [])
    call("orStreamAwaitLaunch", stream)
    call("orLaunch", stream, fn, None, NO_WAIT)
    assert ran == [1]


def test_waiting_for_a_launch_ends_with_the_kernel(stream: int) -> None:
    with kernel(stream):
        thread = in_thread(lambda: call("orStreamAwaitLaunch", stream))
        assert stays_alive(thread)
    thread.join(10)
    assert not thread.is_alive()


def test_a_persistent_stream_works_and_is_never_destroyed() -> None:
    handle = get_pointer("orStreamCreateWithPriority", PERSISTENT, -2)
    with raises("orErrorInvalidResourceHandle", "orStreamDestroy: a default or persistent stream cannot be destroyed"):
        call("orStreamDestroy", handle)
    ran = []
    fn = HostFn(lambda _: ran.append(1))
    call("orLaunch", handle, fn, None, 0)
    call("orStreamSynchronize", handle)
    assert ran == [1]


def test_bad_arguments_of_a_kernel_are_errors(stream: int) -> None:
    scope, what = KernelScope(), Kernel(b"k", OperandsFn(), None)
    with raises("orErrorInvalidValue", "orKernelBegin: scope is NULL"):
        call("orKernelBegin", None, stream, ctypes.byref(what))
    with raises("orErrorInvalidValue", "orKernelBegin: kernel is NULL"):
        call("orKernelBegin", ctypes.byref(scope), stream, None)
    message = "orKernelBegin: stream 0x1 does not exist; it was destroyed, or is no stream"
    with raises("orErrorInvalidResourceHandle", message):
        call("orKernelBegin", ctypes.byref(scope), 1, ctypes.byref(what))


@pytest.mark.parametrize("mode", [ASYNC, CHAOS], ids=["async", "chaos"])
def test_a_failure_of_queued_work_is_told_to_the_next_kernel_once(tmp_path: Path, mode: int) -> None:
    source = r"""
    #include <cstdio>
    #include <stdexcept>
    #include <thread>
    #include "openreg_launch.h"
    int main() {
      orStream_t stream = nullptr;
      orStreamCreateWithPriority(&stream, orStreamPersistent, 0);
      orLaunchKernel(stream, [] { throw std::runtime_error("no"); });
      while (orStreamQuery(stream) == orErrorNotReady) std::this_thread::yield();
      for (int i = 0; i < 3; ++i) {
        orKernel kernel{"k", nullptr, nullptr};
        orKernelScope scope;
        const orError_t error = orKernelBegin(&scope, stream, &kernel);
        std::printf("%s\n", error ? orGetLastErrorMessage() : "begun");
        if (!error) orKernelEnd(&scope, false);
      }
    }
    """
    program = compile_program(cpp_compiler(), tmp_path, source)
    assert run_program(program, OPENREG_EXECUTION={ASYNC: "async", CHAOS: "chaos"}[mode]) == (
        "orKernelBegin: a function launched earlier on a stream of device 0 failed: no. The device is usable; what the "
        "function should have written is not\nbegun\nbegun\n"
    )


def test_a_forked_child_is_refused_and_ends_what_it_was_in() -> None:
    code = """
    import os
    persistent = get_pointer("orStreamCreateWithPriority", PERSISTENT, 0)
    scope, what = KernelScope(), Kernel(b"k", OperandsFn(), None)
    call("orKernelBegin", ctypes.byref(scope), persistent, ctypes.byref(what))
    pid = os.fork()
    if pid == 0:
        lib.orKernelEnd(ctypes.byref(scope), False)
        inner = KernelScope()
        for stream in (None, persistent):
            print(lib.orKernelBegin(ctypes.byref(inner), stream, ctypes.byref(what)), flush=True)
        os._exit(0)
    print(os.waitpid(pid, 0)[1])
    lib.orKernelEnd(ctypes.byref(scope), False)
    """
    assert output_of(code) == "3\n3\n0"


# ---- waiting gives up what the program holds


# In a process of its own: the callbacks are the process's, and Python's have given up the interpreter since torch was
# imported.
@MODES
def test_a_wait_calls_what_gives_up_a_lock_of_the_program_and_takes_it_back(mode: int) -> None:
    code = f"""
    import threading, time
    from test_openreg_kernels import in_thread, kernel
    call("orSetExecutionMode", {mode}, 1)
    stream = get_pointer("orStreamCreate")
    told = []
    before = BeforeWaitFn(lambda: told.append("before") or 42)
    after = AfterWaitFn(told.append)
    call("orSetWaitCallbacks", before, after)
    call("orStreamSynchronize", stream)
    assert told == []  # there was nothing to wait for
    began, ended = threading.Event(), threading.Event()

    def hold():
        with kernel(stream):
            began.set()
            ended.wait()

    thread = in_thread(hold)
    began.wait()
    threading.Timer(0.05, ended.set).start()
    with kernel(stream):
        print(told)
    thread.join()
    call("orSetWaitCallbacks", BeforeWaitFn(), AfterWaitFn())
    """
    assert output_of(code) == "['before', 42]"


def test_one_of_the_two_callbacks_of_a_wait_is_refused() -> None:
    with raises("orErrorInvalidValue", "orSetWaitCallbacks: after is NULL; pass both, or neither"):
        call("orSetWaitCallbacks", BeforeWaitFn(lambda: 42), AfterWaitFn())


# ---- what is told


@MODES
def test_every_activity_is_told_with_its_operands(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
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
        early.__exit__()  # its place is before that of "before"
        for _ in range(10):
            with Named("after") as after:
                order.clear()
                call("orMemset", memory, 0, 8)
                assert order == ["before", "after"] * 2  # begin and end
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
    for kinds in (0, 1024):
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


# ---- calls of the host, and what they start


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


# ---- chaos: pinned memory is poisoned when a copy to it is queued


@pytest.fixture
def pinned() -> Iterator[int]:
    memory = get_pointer("orMallocHost", 64)
    yield memory
    call("orFreeHost", memory)


def test_a_copy_to_pinned_memory_leaves_no_old_bytes_from_the_call_on(stream: int, pinned: int) -> None:
    call("orSetExecutionMode", CHAOS, 3)
    memory = malloc(8)
    for _ in range(50):
        upload(memory, b"contents")
        ctypes.memset(pinned, 0, 64)
        call("orMemcpyAsync", pinned, memory, 8, DEFAULT, stream)
        early = ctypes.string_at(pinned, 8)
        assert early in (b"\xff" * 8, b"contents")
        assert ctypes.string_at(pinned + 8, 56) == bytes(56)
        call("orStreamSynchronize", stream)
        assert ctypes.string_at(pinned, 8) == b"contents"
    call("orFree", memory)


def test_pinned_memory_that_pending_work_still_reads_keeps_its_bytes_until_then(stream: int, pinned: int) -> None:
    call("orSetExecutionMode", CHAOS, 3)
    memory, kept = malloc(8), malloc(8)
    for _ in range(50):
        upload(memory, b"contents")
        ctypes.memmove(pinned, b"original", 8)
        call("orMemcpyAsync", kept, pinned, 8, DEFAULT, stream)  # reads it, later
        call("orMemcpyAsync", pinned, memory, 8, DEFAULT, stream)  # writes it, after that
        call("orStreamSynchronize", stream)
        host = ctypes.create_string_buffer(8)
        call("orMemcpy", host, kept, 8, DEFAULT)
        assert host.raw == b"original"
        assert ctypes.string_at(pinned, 8) == b"contents"
    call("orFree", memory)
    call("orFree", kept)


def test_pinned_memory_that_a_pending_host_function_may_read_keeps_its_bytes_until_then(
    stream: int, pinned: int
) -> None:
    call("orSetExecutionMode", CHAOS, 3)
    memory, seen = malloc(8), []
    fn = HostFn(lambda _: (time.sleep(0.002), seen.append(ctypes.string_at(pinned, 8))))
    for _ in range(10):
        ctypes.memmove(pinned, b"original", 8)
        call("orLaunchHostFunc", stream, fn, None)
        call("orMemcpyAsync", pinned, memory, 8, DEFAULT, stream)
        call("orStreamSynchronize", stream)
    assert seen == [b"original"] * 10
    call("orFree", memory)
