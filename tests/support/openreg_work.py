"""Work for the streams of libopenreg.so, and host threads that wait for it or compute kernels of their own.

In orExecutionInline work runs within the call that launches it. A stream is kept busy by a thread that launches a
function which does not return (Gate): what other threads launch on that stream meanwhile is queued in every mode.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from openreg_c import ASYNC, CHAOS, DEFAULT, INLINE, HostFn, Kernel, KernelScope, OperandsFn, call, get_int, lib

MODES = {"inline": INLINE, "async": ASYNC, "chaos": CHAOS}
NOT_READY = 600
LAUNCH_FAILURE = 719
# Throws a C++ exception, as a failing kernel does: std::bad_alloc.
FAILS = ctypes.cast(ctypes.CDLL("libstdc++.so.6")._ZSt17__throw_bad_allocv, HostFn)
FAILURE = (
    "a function launched earlier on a stream of device {} failed: std::bad_alloc. The device is usable; what the "
    "function should have written is not"
)
kept: list[Any] = []  # a queued function must not be collected


def callback(function: Callable[[], object]) -> Any:
    result = HostFn(lambda _: function() and None)
    kept.append(result)
    return result


def launch(stream: int | None, function: Callable[[], object], flags: int = 0) -> None:
    """Launches `function` as a kernel."""
    call("orLaunch", stream, callback(function), None, flags)


def launch_named(stream: int | None, name: str) -> None:
    """Launches a kernel with this name, which does nothing."""
    kernel = Kernel(name.encode())
    kept.append(kernel)
    call("orLaunchDescribed", stream, callback(lambda: None), None, DEFAULT, ctypes.byref(kernel))


def forced_count() -> int:
    """How many items have begun because of the time."""
    count = ctypes.c_uint64()
    call("orGetForcedCount", ctypes.byref(count))
    return count.value


def launch_host(stream: int | None, function: Callable[[], object]) -> None:
    """Launches `function` as a host function."""
    call("orLaunchHostFunc", stream, callback(function), None)


class Gate:
    """Work that keeps a stream busy from the making of the Gate to `open()`, or to the end of the `with` block."""

    def __init__(self, stream: int | None, launch_with: Callable[..., None] = launch_host) -> None:
        self._entered = threading.Event()
        self._opened = threading.Event()
        device = get_int("orGetDevice")

        def pass_through() -> None:
            self._entered.set()
            assert self._opened.wait(600)

        def launch_gate() -> None:
            call("orSetDevice", device)
            launch_with(stream, pass_through)

        self._thread = threading.Thread(target=launch_gate)
        self._thread.start()
        assert self._entered.wait(600)

    def open(self) -> None:
        self._opened.set()
        self._thread.join()

    def __enter__(self) -> Gate:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()


class Waiter:
    """A call on a thread of its own, with the current device of the thread that makes the object."""

    def __init__(self, name: str, *arguments: Any) -> None:
        self._error: BaseException | None = None
        device = get_int("orGetDevice")

        def work() -> None:
            try:
                call("orSetDevice", device)
                call(name, *arguments)
            except BaseException as error:
                self._error = error

        self._thread = threading.Thread(target=work)
        self._thread.start()

    def waits(self) -> bool:
        """Whether the call still waits, after a time in which it would otherwise have returned."""
        self._thread.join(0.03)
        return self._thread.is_alive()

    def result(self) -> None:
        self._thread.join(600)
        assert not self._thread.is_alive()
        if self._error:
            raise self._error


def record(event: int, stream: int | None) -> None:
    call("orEventRecord", event, stream)


def wait_event(stream: int | None, event: int) -> None:
    call("orStreamWaitEvent", stream, event, 0)


def synchronize(stream: int | None) -> None:
    call("orStreamSynchronize", stream)


def is_pending(stream: int | None) -> bool:
    code: int = lib.orStreamQuery(stream)
    assert code in (0, NOT_READY)
    return code == NOT_READY


def copy_async(to: Any, start: Any, size: int, stream: int | None) -> None:
    call("orMemcpyAsync", to, start, size, DEFAULT, stream)


def thread_of(launch_with: Callable[..., None], stream: int | None, *flags: int) -> int:
    seen: list[int] = []
    launch_with(stream, lambda: seen.append(threading.get_native_id()), *flags)
    synchronize(stream)
    return seen[0]


def name_of_thread(thread: int) -> str:
    return Path(f"/proc/self/task/{thread}/comm").read_text().strip()


class kernel:
    """A context manager: its block is a kernel that the calling thread computes."""

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
