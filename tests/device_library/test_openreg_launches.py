"""Launches of openreg.h and openreg_launch.h: functions of the host, kernels, and how their failures are reported."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from openreg_c import HostFn, call, download, get_pointer, lib, upload
from openreg_process import compile_program, cpp_compiler, raises, run_program
from openreg_work import FAILS, FAILURE, LAUNCH_FAILURE, is_pending, launch, record, synchronize

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- Launches --------------------------------------------------------------------------------------------------------


def test_flags_that_do_not_exist_are_errors(stream: int, event: int) -> None:
    handle = ctypes.c_void_p()
    with raises("orErrorInvalidValue", "orStreamCreateWithPriority: flags is 2; pass 0 or orStreamPersistent (1)"):
        call("orStreamCreateWithPriority", ctypes.byref(handle), 2, 0)
    with raises("orErrorInvalidValue", "orStreamWaitEvent: flags is 4; pass 0 or orEventWaitExternal (1)"):
        call("orStreamWaitEvent", stream, event, 4)
    with raises(
        "orErrorInvalidValue",
        "orLaunch: flags is 8; pass orLaunchDefault (0), or join orLaunchMayRunInline (1), orLaunchNoWait (2) and "
        "orLaunchOnce (4)",
    ):
        call("orLaunch", stream, HostFn(lambda _: None), None, 8)
    with raises(
        "orErrorInvalidValue",
        "orEventCreateWithFlags: flags is 2; pass orEventDisableTiming (0) or orEventEnableTiming (1)",
    ):
        call("orEventCreateWithFlags", ctypes.byref(handle), 2)


def test_host_functions_run_in_order_with_their_data(stream: int) -> None:
    seen: list[int | None] = []
    append = HostFn(seen.append)
    for data in (1, 2, None, 3):
        call("orLaunchHostFunc", stream, append, data)
    call("orLaunchHostFunc", None, append, 4)
    call("orStreamSynchronize", stream)
    call("orDeviceSynchronize")
    assert [data for data in seen if data != 4] == [1, 2, None, 3]
    assert 4 in seen


LAUNCHES = r"""
#include "openreg_launch.h"

#include <cstdio>
#include <memory>
#include <stdexcept>
#include <thread>

void scale(float* data, size_t count, float factor) {
  auto* values = static_cast<float*>(orGetKernelPointer(data));
  for (size_t i = 0; i < count; ++i) values[i] *= factor;
}

void show(const char* what, orError_t error) {
  std::printf("%s: %s%s%s\n", what, orGetErrorName(error), error ? ": " : "", error ? orGetLastErrorMessage() : "");
}

int main() {
  float values[3] = {1, 2, 3};
  void* data = nullptr;
  orStream_t stream = nullptr, other = nullptr;
  orEvent_t event = nullptr;
  orMalloc(&data, sizeof(values));
  orStreamCreate(&stream);
  orStreamCreate(&other);
  orEventCreate(&event);

  orMemcpyAsync(data, values, sizeof(values), orMemcpyHostToDevice, stream);
  show("launch", orLaunchKernel(stream, scale, static_cast<float*>(data), size_t{3}, 2.0f));
  show("launch", orLaunchKernel(stream, [owned = std::make_unique<int>(3), data](int n) {
    scale(static_cast<float*>(data), n, static_cast<float>(*owned));
  }, 3));
  orMemcpyAsync(values, data, sizeof(values), orMemcpyDeviceToHost, stream);
  show("synchronize", orStreamSynchronize(stream));
  std::printf("%g %g %g\n", values[0], values[1], values[2]);

  auto fail = [](const char* why) { throw std::runtime_error(why); };
  show("launch", orLaunchKernel(stream, fail, "first"));
  show("launch", orLaunchKernel(stream, fail, "second"));
  show("launch", orLaunchKernel(other, [] { throw 1; }));
  show("launch", orLaunchKernel(nullptr, fail, "default"));
  show("stream", orStreamSynchronize(stream));
  show("stream", orStreamSynchronize(stream));
  show("memcpy", orMemcpy(values, data, sizeof(values), orMemcpyDefault));
  show("memcpy", orMemcpy(values, data, sizeof(values), orMemcpyDefault));
  orStreamDestroy(other);
  show("device", orDeviceSynchronize());
  show("device", orDeviceSynchronize());
  orSetDevice(-1); // another failure: what failed before cannot be thrown any more
  orRethrowLaunchFailure();
  orLaunchKernel(stream, fail, "event");
  orEventRecord(event, stream);
  show("event", orEventSynchronize(event));
  show("event", orEventQuery(event));
  orLaunchKernel(stream, fail, "query");
  orEventRecord(event, stream);
  while (orStreamQuery(stream) == orErrorNotReady || orEventQuery(event) == orErrorNotReady) std::this_thread::yield();
  show("query", orStreamQuery(stream));
  show("query", orEventQuery(event));
  show("stream", orStreamSynchronize(stream));
  show("stream", orStreamSynchronize(stream));

  struct Own { int value; };
  orLaunchKernel(stream, [] { throw Own{7}; });
  show("own", orStreamSynchronize(stream));
  for (int i = 0; i < 2; ++i) {
    try {
      orRethrowLaunchFailure();
      std::puts("nothing to throw");
    } catch (const Own& own) {
      std::printf("thrown %d\n", own.value);
    }
  }

  auto counted = std::make_shared<int>(0);
  show("destroyed", orLaunchKernel(other, [counted] { ++*counted; }));
  std::printf("runs %d, references %ld\n", *counted, counted.use_count());
  orStreamDestroy(stream);
  orEventDestroy(event);
  orFree(data);
}
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_kernels_launch_from_cpp_and_their_failures_are_reported_once(tmp_path: Path, mode: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, LAUNCHES)
    output = run_program(program, OPENREG_EXECUTION=mode)

    def failure(call_name: str, reason: str) -> str:
        return (
            f"orErrorLaunchFailure: {call_name}: a function launched earlier on a stream of device 0 failed: {reason}. "
            "The device is usable; what the function should have written is not"
        )

    lines = output.splitlines()
    destroyed = lines.pop(-2)
    assert lines == [
        "launch: orSuccess",
        "launch: orSuccess",
        "synchronize: orSuccess",
        "6 12 18",
        *["launch: orSuccess"] * 4,
        "stream: " + failure("orStreamSynchronize", "first"),
        "stream: orSuccess",
        "memcpy: " + failure("orMemcpy", "default"),
        "memcpy: orSuccess",
        "device: " + failure("orDeviceSynchronize", "unknown exception"),
        "device: orSuccess",
        "event: " + failure("orEventSynchronize", "event"),
        "event: orSuccess",
        "query: orSuccess",
        "query: orSuccess",
        "stream: " + failure("orStreamSynchronize", "query"),
        "stream: orSuccess",
        "own: " + failure("orStreamSynchronize", "unknown exception"),
        "thrown 7",
        "nothing to throw",
        "runs 0, references 1",
    ]
    assert re.fullmatch(
        r"destroyed: orErrorInvalidResourceHandle: orLaunch: stream 0x\w+ does not exist; it was destroyed, or "
        r"is no stream",
        destroyed,
    )


DROPS = r"""
#include "openreg_launch.h"

#include <cstdio>
#include <stdexcept>
#include <thread>

int main() {
  orStream_t stream = nullptr, other = nullptr, third = nullptr;
  for (orStream_t* made : {&stream, &other, &third}) orStreamCreate(made);
  std::exception_ptr failure = std::make_exception_ptr(std::runtime_error("of the library that has ended"));
  for (orStream_t used : {stream, other}) {
    orLaunchKernel(used, [failure] { std::rethrow_exception(failure); });
  }
  orLaunchKernel(third, [] { throw std::runtime_error("of the program"); });
  for (orStream_t used : {stream, other, third}) {
    while (orStreamQuery(used) == orErrorNotReady) std::this_thread::yield();
  }
  for (int i = 0; i < 2; ++i) {
    int dropped = -1;
    const orError_t error = orDropFailure(failure, &dropped);
    std::printf("%s %d\n", orGetErrorName(error), dropped);
  }
  for (orStream_t used : {stream, other, third}) std::puts(orGetErrorName(orStreamSynchronize(used)));
  std::puts(orGetErrorName(orDropFailure(failure, nullptr)));
  std::puts(orGetLastErrorMessage());
}
"""


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_failure_that_no_call_has_returned_can_be_dropped(tmp_path: Path, mode: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, DROPS)
    assert run_program(program, OPENREG_EXECUTION=mode).splitlines() == [
        "orSuccess 2",
        "orSuccess 0",
        "orSuccess",
        "orSuccess",
        "orErrorLaunchFailure",
        "orErrorInvalidValue",
        "orDropFailure: dropped is NULL; pass the address of an int",
    ]


# ---- Failures --------------------------------------------------------------------------------------------------------


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
    while is_pending(stream):  # a query reports no failure
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
