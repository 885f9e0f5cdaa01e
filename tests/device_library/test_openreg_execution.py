"""Execution of openreg.h: which thread runs what, the execution modes, and which bugs orExecutionChaos shows."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from openreg_c import (
    ASYNC,
    CHAOS,
    DEFAULT,
    INLINE,
    MAY_RUN_INLINE,
    PAGE,
    HostFn,
    call,
    download,
    get_int,
    get_pointer,
    malloc,
    upload,
)
from openreg_process import output_of, raises
from openreg_work import (
    FAILS,
    FAILURE,
    MODES,
    Gate,
    Waiter,
    copy_async,
    is_pending,
    launch,
    launch_host,
    lib,
    name_of_thread,
    record,
    synchronize,
    thread_of,
    wait_event,
)

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- Who runs what ---------------------------------------------------------------------------------------------------


def test_one_thread_runs_the_kernels_of_all_streams_and_devices(
    queueing_mode: str, make_stream: Callable[..., int]
) -> None:
    streams = [None, *(make_stream(number % 2, -(number % 4)) for number in range(8))]
    threads = {thread_of(launch, handle) for handle in streams}
    assert [name_of_thread(thread) for thread in threads] == ["openreg compute"]
    host_threads = {thread_of(launch_host, handle) for handle in streams}
    assert [name_of_thread(thread) for thread in host_threads] == ["openreg host"]


def test_inline_everything_runs_on_the_thread_that_launches(stream: int) -> None:
    assert {thread_of(launch, stream), thread_of(launch_host, None)} == {threading.get_native_id()}


def test_inline_what_is_queued_runs_on_the_devices_threads(stream: int) -> None:
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(threading.get_native_id()))
    synchronize(stream)
    assert name_of_thread(seen[0]) == "openreg compute"


def test_a_small_kernel_runs_inline_on_an_idle_stream_in_async_mode_only(stream: int) -> None:
    main = threading.get_native_id()
    for execution in MODES.values():
        call("orSetExecutionMode", execution, 0)
        assert (thread_of(launch, stream, MAY_RUN_INLINE) == main) == (execution != CHAOS)
    call("orSetExecutionMode", ASYNC, 0)
    seen: list[int] = []
    with Gate(stream):
        launch(stream, lambda: seen.append(threading.get_native_id()), MAY_RUN_INLINE)
        assert seen == []
    synchronize(stream)
    assert seen != [main]


def test_copies_and_host_functions_overlap_kernels(
    queueing_mode: str, stream: int, other: int, device_memory: int, pinned_memory: int
) -> None:
    seen: list[int] = []
    with Gate(stream, launch):
        copy_async(pinned_memory, device_memory, PAGE, other)
        copy_async(device_memory, pinned_memory, PAGE, other)
        launch_host(other, lambda: seen.append(1))
        synchronize(other)
        assert seen == [1]
        launch(other, lambda: seen.append(2))  # this kernel waits: one thread runs all kernels; the gate keeps it busy
        assert is_pending(other)
        time.sleep(0.01)
        assert seen == [1]
    synchronize(other)
    assert seen == [1, 2]


@pytest.mark.parametrize("execution", ["inline", "async"])  # in chaos streams take turns at random
def test_the_stream_of_highest_priority_comes_first(
    execution: str, stream: int, event: int, make_stream: Callable[..., int]
) -> None:
    call("orSetExecutionMode", MODES[execution], 0)
    priorities = [0, -2, -1, -3, 0, -2]
    streams = [make_stream(number % 2, priority) for number, priority in enumerate(priorities)]
    seen: list[int] = []
    with Gate(stream):
        record(event, stream)
        for handle, priority in zip(streams, priorities, strict=True):
            wait_event(handle, event)
            launch(handle, lambda priority=priority: seen.append(priority))
    for handle in streams:
        synchronize(handle)
    assert seen == sorted(priorities)


# In a process of its own: a process has one idle callback, and torch_openreg has set that of pytest's process.
@pytest.mark.parametrize("mode", [ASYNC, CHAOS], ids=["async", "chaos"])
def test_the_idle_callback_is_called_on_the_compute_thread_when_it_has_nothing_to_do(mode: int) -> None:
    code = f"""
    import threading, time
    from openreg_work import Gate, callback, launch, name_of_thread, synchronize
    call("orSetExecutionMode", {mode}, 7)
    calls = []
    called = threading.Event()

    def idle():
        calls.append(name_of_thread(threading.get_native_id()))
        called.set()

    call("orSetIdleCallback", callback(idle), None, 1000)
    time.sleep(0.01)
    assert calls == []
    for expected in (1, 2):
        called.clear()
        with Gate(None, launch):
            launch(None, lambda: None)
            time.sleep(0.01)
            assert len(calls) == expected - 1  # no call while the thread is busy, however long that takes
        synchronize(None)
        assert called.wait(600)
        time.sleep(0.01)
        assert calls == ["openreg compute"] * expected  # one call for each time that the thread becomes idle
    call("orSetIdleCallback", HostFn(), None, 0)
    launch(None, lambda: None)
    synchronize(None)
    time.sleep(0.01)
    print(len(calls))
    """
    assert output_of(code) == "2"


def test_threads_start_with_the_first_work_and_cost_nothing_at_rest() -> None:
    code = """
        import threading, time
        stream, event = get_pointer("orStreamCreate"), get_pointer("orEventCreate")
        pointer, pinned = malloc(8), get_pointer("orMallocHost", 8)
        def names():
            tasks = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
            return sorted(open(f"/proc/self/task/{task}/comm").read().strip() for task in tasks)
        call("orEventRecord", event, stream), call("orStreamWaitEvent", None, event, 0)
        call("orMemcpy", pointer, pinned, 8, DEFAULT), call("orDeviceSynchronize")
        nothing = HostFn(lambda _: None)
        call("orLaunch", stream, nothing, None, MAY_RUN_INLINE)
        print(names())
        call("orLaunch", stream, nothing, None, 0), call("orDeviceSynchronize")
        print(names())
        call("orMemcpyAsync", pointer, pinned, 8, DEFAULT, stream), call("orDeviceSynchronize")
        print(names())
        call("orLaunchHostFunc", stream, nothing, None), call("orDeviceSynchronize")
        print(names())
        before = time.process_time()
        time.sleep(0.5)
        print(time.process_time() - before < 0.1)
    """
    assert output_of(code, OPENREG_EXECUTION="async").splitlines() == [
        "[]",
        "['openreg compute']",
        "['openreg compute', 'openreg copy']",
        "['openreg compute', 'openreg copy', 'openreg host']",
        "True",
    ]


@pytest.mark.parametrize("pause", [0, 0.0001, 0.002])  # the next launch finds the thread busy, napping, asleep
@pytest.mark.parametrize("launch_with", [launch, launch_host])
def test_work_that_nobody_waits_for_runs_though_its_thread_was_idle(
    queueing_mode: str, stream: int, launch_with: Callable[..., None], pause: float
) -> None:
    for _ in range(20):
        ran = threading.Event()
        launch_with(stream, ran.set)
        assert ran.wait(600)
        time.sleep(pause)


def test_signals_are_left_to_the_hosts_threads() -> None:
    code = """
        import signal
        nothing = HostFn(lambda _: None)
        call("orLaunch", None, nothing, None, 0), call("orDeviceSynchronize")
        for task in os.listdir("/proc/self/task"):
            name = mask = None
            while int(task) != os.getpid() and (name is None or not name.startswith("openreg")):  # it is starting
                lines = open(f"/proc/self/task/{task}/status").read().splitlines()
                status = dict(line.split(":\\t", 1) for line in lines)
                name, mask = status["Name"], int(status["SigBlk"], 16)
            if mask is not None:
                print(*(bool(mask >> (s - 1) & 1) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGSEGV)))
    """
    assert output_of(code, OPENREG_EXECUTION="async") == "True True False"
    assert output_of(code, OPENREG_EXECUTION="late").splitlines() == ["True True False"] * 2  # one watches the others


def test_a_system_that_refuses_a_thread_is_an_error_and_later_work_runs() -> None:
    code = """
        import resource
        stream = get_pointer("orStreamCreate")
        seen = []
        function = HostFn(seen.append)
        used = int(open("/proc/self/statm").read().split()[0]) * 4096
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), resource.RLIM_INFINITY))
        try:
            call("orLaunch", stream, function, 1, 0)
        except OpenRegError as error:
            print(error)
        call("orStreamQuery", stream)
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        call("orLaunch", stream, function, 2, 0)
        call("orStreamSynchronize", stream)
        print(seen)
    """
    assert output_of(code, OPENREG_EXECUTION="async").splitlines() == [
        "orErrorOperatingSystem: orLaunch: cannot start a thread to run queued work: Resource temporarily unavailable. "
        "Free memory, or raise the limit on processes (ulimit -u)",
        "[2]",
    ]


# ---- Modes -----------------------------------------------------------------------------------------------------------


def execution_mode() -> tuple[int, int]:
    seed = ctypes.c_uint64()
    return get_int("orGetExecutionMode", ctypes.byref(seed)), seed.value


def test_the_mode_comes_from_the_environment() -> None:
    code = """
        seed = ctypes.c_uint64()
        print(get_int("orGetExecutionMode", ctypes.byref(seed)), seed.value)
        call("orGetExecutionMode", None, None)
    """
    assert output_of(code) == "0 0"
    assert output_of(code, OPENREG_EXECUTION="async") == "1 0"
    assert output_of(code, OPENREG_EXECUTION="chaos", OPENREG_CHAOS_SEED=str(2**64 - 1)) == f"2 {2**64 - 1}"


def test_a_schedule_comes_from_the_environment_with_its_seed() -> None:
    code = "seed = ctypes.c_uint64(); print(get_int('orGetExecutionMode', ctypes.byref(seed)), seed.value)"
    for name, expected in (("early", "0 0"), ("late", "2 0"), (f"random:{2**64 - 1}", f"2 {2**64 - 1}")):
        assert output_of(code, OPENREG_EXECUTION=name, OPENREG_CHAOS_SEED="5") == expected


def test_each_mode_has_the_name_that_the_environment_gives_it() -> None:
    assert [lib.orGetExecutionModeName(mode) for mode in (0, 1, 2, 3)] == [b"inline", b"async", b"chaos", None]


def test_orExecutesInline_does_not_start_the_simulator() -> None:
    code = """
        import os
        print(lib.orExecutesInline())
        call("orDeviceSynchronize")
        print(lib.orExecutesInline())
        pid = os.fork()
        if pid == 0:
            os._exit(10 + lib.orExecutesInline())
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """
    assert output_of(code).split() == ["False", "True", "10"]
    assert output_of(code, OPENREG_EXECUTION="async").split() == ["False", "False", "10"]


def test_switching_the_mode_waits_and_leaves_failures(mode: str, stream: int) -> None:
    with Gate(stream):
        call("orLaunch", stream, FAILS, None, 0)
        waiter = Waiter("orSetExecutionMode", CHAOS, 5)
        assert waiter.waits()
        assert execution_mode() == (MODES[mode], 7)
    waiter.result()
    assert execution_mode() == (CHAOS, 5)
    with raises("orErrorLaunchFailure", f"orStreamSynchronize: {FAILURE.format(0)}"):
        synchronize(stream)


@pytest.mark.parametrize("number", [-1, 3])
def test_a_mode_that_does_not_exist_is_an_error(number: int) -> None:
    with raises("orErrorInvalidValue", f"orSetExecutionMode: mode is {number}, which is no orExecutionMode (0 to 2)"):
        call("orSetExecutionMode", number, 0)
    assert execution_mode() == (INLINE, 0)


# ---- Chaos -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["device", "behind the target"])
def test_chaos_shows_a_host_that_reads_before_the_copy_has_retired(
    place: str, stream: int, device_memory: int, pinned_memory: int
) -> None:
    call("orSetExecutionMode", CHAOS, 1)
    source = device_memory if place == "device" else pinned_memory + 5
    upload(source, b"right")
    ctypes.memmove(pinned_memory, b"stale", 5)
    copy_async(pinned_memory, source, 5, stream)
    # A reader never finds the old bytes. If those happened to be right, a program that reads too early would pass.
    assert ctypes.string_at(pinned_memory, 5) == b"\xff\xff\xff\xff\xff"
    synchronize(stream)
    assert ctypes.string_at(pinned_memory, 5) == b"right"


def test_chaos_shows_a_missing_wait_between_streams(stream: int, other: int, device_memory: int) -> None:
    def read_without_waiting(execution: int, seed: int) -> bytes:
        call("orSetExecutionMode", execution, seed)
        call("orMemset", device_memory, 0, 1)
        call("orMemsetAsync", device_memory, 1, 1, stream)
        call("orMemcpyAsync", device_memory + 1, device_memory, 1, DEFAULT, other)
        call("orDeviceSynchronize")
        return download(device_memory + 1, 1)

    assert read_without_waiting(INLINE, 0) == b"\1"
    assert read_without_waiting(CHAOS, 0) == b"\0"
    assert {read_without_waiting(CHAOS, seed) for seed in range(1, 20)} == {b"\0", b"\1"}


def test_chaos_is_right_for_copies_that_overlap_themselves(stream: int, device_memory: int) -> None:
    call("orSetExecutionMode", CHAOS, 0)
    for offset, expected in ((0, b"abcdefef"), (2, b"..abcdef"), (4, b"..ababcdef")):
        upload(device_memory, b"..abcdef")
        copy_async(device_memory + offset, device_memory + 2, 6, stream)
        synchronize(stream)
        assert download(device_memory, len(expected)) == expected


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
        call("orMemcpyAsync", kept, pinned, 8, DEFAULT, stream)  # reads `pinned` later
        call("orMemcpyAsync", pinned, memory, 8, DEFAULT, stream)  # writes `pinned` after that read
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
