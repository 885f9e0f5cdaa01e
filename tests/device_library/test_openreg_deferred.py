"""Work that another thread completes (orLaunchDeferred): in the order of its stream, in each execution mode."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path

import pytest
from openreg_c import (
    BEGIN,
    END,
    KERNEL,
    DeferredFn,
    Kernel,
    KernelScope,
    Observer,
    OpenRegError,
    call,
    get_int,
    get_pointer,
    lib,
)
from openreg_process import compile_program, cpp_compiler, output_of, raises, run_program
from openreg_work import FAILS, FAILURE, MODES, NOT_READY, kept, launch_host

# Throws a C++ exception, as a library that fails to start its work does: std::bad_alloc.
DEFERRED_FAILS = ctypes.cast(FAILS, DeferredFn)


class Deferred:
    """Work that begins on `stream`, and completes with `complete()`."""

    def __init__(self, stream: int, kernel: Kernel | None = None) -> None:
        self._begun = threading.Event()
        self._completion = 0

        def begin(_: int | None, completion: int) -> None:
            self._completion = completion
            self._begun.set()

        kept.append(DeferredFn(begin))
        call("orLaunchDeferred", stream, kept[-1], None, ctypes.byref(kernel) if kernel else None)

    def has_begun(self, seconds: float = 600) -> bool:
        return self._begun.wait(seconds)

    def complete(self) -> None:
        assert self.has_begun()
        call("orCompletionSignal", self._completion, None)


def test_a_stream_goes_on_when_another_thread_completes_the_work(mode: str, stream: int) -> None:
    order: list[str] = []
    launch_host(stream, lambda: order.append("before"))
    deferred = Deferred(stream)
    launch_host(stream, lambda: order.append("after"))
    assert deferred.has_begun()
    assert lib.orStreamQuery(stream) == NOT_READY
    assert order == ["before"]
    thread = threading.Thread(target=deferred.complete)
    thread.start()
    call("orStreamSynchronize", stream)
    thread.join()
    assert order == ["before", "after"]


def test_work_that_has_begun_and_is_not_complete_is_not_within_the_thread_that_began_it(
    mode: str, stream: int, other: int
) -> None:
    depths: list[int] = []
    launch_host(stream, lambda: depths.append(lib.orKernelDepth()))
    deferred = Deferred(stream, Kernel(b"deferred"))
    assert deferred.has_begun()
    scope, kernel = KernelScope(), Kernel(b"inner")
    call("orKernelBegin", ctypes.byref(scope), other, ctypes.byref(kernel))
    depths.append(lib.orKernelDepth())
    lib.orKernelEnd(ctypes.byref(scope), False)
    depths.append(lib.orKernelDepth())
    deferred.complete()
    call("orStreamSynchronize", stream)
    assert depths == [1, 1, 0]


def test_host_functions_of_other_streams_run_while_the_work_is_pending(mode: str, stream: int, other: int) -> None:
    """If pending work blocked host functions, two processes that wait for each other's second transfer would hang."""
    first, second = Deferred(stream), Deferred(other)
    assert first.has_begun()
    assert second.has_begun()
    second.complete()
    call("orStreamSynchronize", other)
    assert lib.orStreamQuery(stream) == NOT_READY
    first.complete()
    call("orStreamSynchronize", stream)


def test_an_event_and_a_waiting_stream_wait_for_the_completion(mode: str, stream: int, other: int) -> None:
    event = get_pointer("orEventCreate")
    deferred = Deferred(stream)
    call("orEventRecord", event, stream)
    call("orStreamWaitEvent", other, event, 0)
    ran = threading.Event()
    launch_host(other, ran.set)
    assert lib.orEventQuery(event) == NOT_READY
    assert not ran.wait(0.02)
    deferred.complete()
    call("orEventSynchronize", event)
    call("orStreamSynchronize", other)
    assert ran.is_set()
    call("orEventDestroy", event)


def test_deferred_work_may_complete_within_the_function_that_starts_it(mode: str, stream: int) -> None:
    kept.append(DeferredFn(lambda _, completion: lib.orCompletionSignal(completion, None) and None))
    for _ in range(20):
        call("orLaunchDeferred", stream, kept[-1], None, None)
    call("orStreamSynchronize", stream)


def test_the_work_runs_with_its_streams_device_current(mode: str) -> None:
    call("orSetDevice", 1)
    on_one = get_pointer("orStreamCreate")
    call("orSetDevice", 0)
    devices: list[int] = []

    def begin(_: int | None, completion: int) -> None:
        devices.append(get_int("orGetDevice"))
        lib.orCompletionSignal(completion, None)

    kept.append(DeferredFn(begin))
    call("orLaunchDeferred", on_one, kept[-1], None, None)
    call("orStreamSynchronize", on_one)
    assert devices == [1]
    assert get_int("orGetDevice") == 0
    call("orStreamDestroy", on_one)


def test_an_exception_that_leaves_the_function_completes_the_work_with_the_failure(mode: str, stream: int) -> None:
    call("orLaunchDeferred", stream, DEFERRED_FAILS, None, None)
    with raises("orErrorLaunchFailure", f"orStreamSynchronize: {FAILURE.format(0)}"):
        call("orStreamSynchronize", stream)
    call("orStreamSynchronize", stream)


def test_a_second_completion_is_refused(mode: str, stream: int) -> None:
    deferred = Deferred(stream)
    deferred.complete()
    call("orStreamSynchronize", stream)
    sentence = (
        "orCompletionSignal: completion .* does not exist; the work has completed already, or it is no completion"
    )
    with pytest.raises(OpenRegError, match=sentence):
        deferred.complete()


def test_an_observer_is_told_of_the_begin_and_of_the_completion(mode: str, stream: int) -> None:
    with Observer(KERNEL) as observer:
        deferred = Deferred(stream, Kernel(b"all_reduce"))
        assert deferred.has_begun()
        assert [(event[1], event[5]) for event in observer.events] == [(BEGIN, "all_reduce")]
        deferred.complete()
        call("orStreamSynchronize", stream)
        assert [(event[1], event[5]) for event in observer.events] == [(BEGIN, "all_reduce"), (END, "all_reduce")]
        assert observer.events[0][2] == observer.events[1][2]  # the activity's number


def test_a_kernel_cannot_launch_it_within_its_own_turn(mode: str, stream: int) -> None:
    scope = KernelScope()
    kernel = Kernel(b"test")
    call("orKernelBegin", ctypes.byref(scope), stream, ctypes.byref(kernel))
    kept.append(DeferredFn(lambda _, completion: None))
    with raises(
        "orErrorNotPermitted",
        "orLaunchDeferred: called inside a kernel that has the turn of the stream, the work could not complete before "
        "that kernel ends; call it after the kernel",
    ):
        call("orLaunchDeferred", stream, kept[-1], None, None)
    lib.orKernelEnd(ctypes.byref(scope), False)


def test_a_null_function_is_refused(stream: int) -> None:
    with raises("orErrorInvalidValue", "orLaunchDeferred: fn is NULL; pass a function"):
        call("orLaunchDeferred", stream, DeferredFn(), None, None)


THREADS = r"""
#include <openreg.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <thread>

// Work of several streams, each completed by a thread of its own; every seventh fails.
int main() {
  if (orSetExecutionMode((orExecutionMode)std::atoi(std::getenv("MODE")), 3) != orSuccess) return 1;
  static int value[4];
  orStream_t streams[4];
  for (orStream_t& stream : streams) orStreamCreate(&stream);
  int failures = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 4; ++i) {
      orLaunchDeferred(streams[i], [](void* data, orCompletion_t completion) {
        std::thread([data, completion] {
          const int old = (*static_cast<int*>(data))++; // a race, if the stream went on too early
          std::exception_ptr failure;
          if (old % 7 == 6) failure = std::make_exception_ptr(std::runtime_error("seventh"));
          orCompletionSignal(completion, failure ? &failure : nullptr);
        }).detach();
      }, &value[i], nullptr);
    }
    if (round % 7 == 6) {
      for (orStream_t stream : streams) failures += orStreamSynchronize(stream) == orErrorLaunchFailure;
    }
  }
  for (orStream_t stream : streams) orStreamSynchronize(stream);
  std::printf("%d %d %d %d %d\n", value[0], value[1], value[2], value[3], failures);
}
"""


@pytest.mark.parametrize("execution", MODES)
def test_threads_complete_the_work_of_several_streams_in_order(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, THREADS)
    assert run_program(program, MODE=str(MODES[execution])) == "200 200 200 200 112\n"


@pytest.mark.parametrize("execution", MODES)
def test_a_process_ends_with_work_that_never_completes(execution: str) -> None:
    program = f"""
    call("orSetExecutionMode", {MODES[execution]}, 0)
    stream = get_pointer("orStreamCreate")
    import threading
    begun = threading.Event()
    begin = DeferredFn(lambda _, completion: begun.set())
    call("orLaunchDeferred", stream, begin, None, None)
    print(begun.wait(600))
    """
    assert output_of(program) == "True"
