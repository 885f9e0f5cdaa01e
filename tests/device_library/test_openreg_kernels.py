"""Kernels of openreg.h: a stream runs one piece of work at a time, so a kernel waits for its *turn* on the stream.

Tests orKernelBegin, orKernelEnd, orLaunch, orStreamAwaitLaunch and orSetWaitCallbacks, in each execution mode.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest
from openreg_c import (
    ASYNC,
    CHAOS,
    DEFAULT,
    INLINE,
    NO_WAIT,
    PERSISTENT,
    AfterWaitFn,
    BeforeWaitFn,
    HostFn,
    Kernel,
    KernelScope,
    OperandsFn,
    call,
    get_pointer,
    lib,
    malloc,
)
from openreg_process import compile_program, cpp_compiler, output_of, raises, run_program
from openreg_work import NOT_READY, Gate, in_thread, kernel, launch, stays_alive

pytestmark = pytest.mark.usefixtures("clean_device")
MODES = pytest.mark.parametrize("mode", [INLINE, ASYNC, CHAOS], ids=["inline", "async", "chaos"])


# ---- the turn of a stream


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
def test_work_that_another_thread_starts_on_the_stream_waits_for_the_kernel(stream: int, mode: int, what: str) -> None:
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
def test_a_kernel_waits_for_the_work_that_is_queued(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    order: list[str] = []
    gate = Gate(stream)
    launch(stream, lambda: order.append("queued"))
    assert order == []
    timer = threading.Timer(0.1, gate.open)
    timer.start()
    with kernel(stream):
        order.append("kernel")
    timer.join()
    assert order == ["queued", "kernel"]


@MODES
def test_work_that_a_kernel_starts_on_its_own_stream_runs_at_once(stream: int, mode: int) -> None:
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
def test_stream_wait_event_inside_a_kernel_blocks_until_the_event_is_done(stream: int, other: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    done: list[int] = []
    event = get_pointer("orEventCreate")
    gate = Gate(other)
    launch(other, lambda: done.append(1))
    call("orEventRecord", event, other)
    timer = threading.Timer(0.05, gate.open)
    with kernel(stream):
        assert done == []
        timer.start()
        call("orStreamWaitEvent", stream, event, 0)
        assert done == [1]
    timer.join()
    call("orEventDestroy", event)


@MODES
def test_an_event_that_another_thread_records_during_a_kernel_is_done_after_the_kernel(stream: int, mode: int) -> None:
    call("orSetExecutionMode", mode, 1)
    event = get_pointer("orEventCreate")
    with kernel(stream):
        thread = in_thread(lambda: call("orEventRecord", event, stream))
        thread.join(600)
        assert not thread.is_alive()  # the record is queued, so orEventRecord has returned
        assert lib.orEventQuery(event) == NOT_READY
    call("orEventSynchronize", event)
    call("orEventQuery", event)
    call("orEventDestroy", event)


@MODES
def test_two_threads_do_not_deadlock_if_each_wants_the_stream_of_the_others_kernel(
    stream: int, other: int, mode: int
) -> None:
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
            thread.join(600)
            assert not thread.is_alive()
    call("orDeviceSynchronize")
    assert len(ended) == 40


def test_three_threads_do_not_deadlock_if_each_wants_the_stream_of_the_next_ones_kernel(
    stream: int, other: int
) -> None:
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
            thread.join(600)
            assert not thread.is_alive()
    call("orStreamDestroy", third)


COUNT = r"""
#include <cstdio>
#include <thread>
#include <vector>
#include "openreg.h"
#include "openreg_launch.h"

// If two kernels of one stream overlap, increments of `sum` are lost.
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


def test_a_launch_with_no_wait_returns_not_ready_while_the_stream_is_busy(stream: int) -> None:
    ran = []
    fn = HostFn(lambda _: ran.append(1))
    codes = []
    with kernel(stream):
        in_thread(lambda: codes.append(lib.orLaunch(stream, fn, None, NO_WAIT))).join()
    assert (codes, ran) == ([NOT_READY], [])
    call("orStreamAwaitLaunch", stream)
    call("orLaunch", stream, fn, None, NO_WAIT)
    assert ran == [1]


def test_await_launch_blocks_until_the_kernel_on_the_stream_has_ended(stream: int) -> None:
    with kernel(stream):
        thread = in_thread(lambda: call("orStreamAwaitLaunch", stream))
        assert stays_alive(thread)
    thread.join(600)
    assert not thread.is_alive()


def test_a_persistent_stream_runs_work_and_cannot_be_destroyed() -> None:
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
def test_the_next_kernel_returns_a_failure_of_queued_work_once(tmp_path: Path, mode: int) -> None:
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


def test_a_forked_child_can_end_the_parents_kernel_and_begin_none() -> None:
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
    assert output_of(code) == "3\n3\n0"  # orErrorInitializationError twice, and the child's exit status


# ---- wait callbacks


# This test runs in a process of its own: the callbacks belong to the process, and torch_openreg has set callbacks here
# that release Python's interpreter lock.
@MODES
def test_a_wait_calls_before_and_then_after_with_its_token(mode: int) -> None:
    code = f"""
    import threading, time
    from openreg_work import in_thread, kernel
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


def test_setting_only_one_wait_callback_is_an_error() -> None:
    with raises("orErrorInvalidValue", "orSetWaitCallbacks: after is NULL; pass both, or neither"):
        call("orSetWaitCallbacks", BeforeWaitFn(lambda: 42), AfterWaitFn())
