"""Forks, threads, the end of threads and the exit of the process, while the device is used."""

from __future__ import annotations

import ctypes
import re
import textwrap
import threading
from pathlib import Path

import programs
import pytest
from openreg_c import DEVICE_TO_DEVICE, HOST_TO_DEVICE, attributes, call, download, get_pointer, malloc, memory_info
from openreg_process import compile_program, cpp_compiler, output_of, run_program, run_python
from openreg_work import MODES, NOT_READY

pytestmark = pytest.mark.usefixtures("clean_device")


# ---- Forks -----------------------------------------------------------------------------------------------------------

BAD_FORK = (
    "Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the 'spawn' "
    "start method"
)
IN_CHILD = """
def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        finally:
            sys.stdout.flush()
            os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        print("status", status)
import sys
"""


def test_a_child_forked_after_the_start_is_told_to_spawn() -> None:
    code = """
        pointer = malloc(100)
        pinned = get_pointer("orMallocHost", 100)
        ctypes.memmove(pinned, b"kept", 4)
        stream, event = get_pointer("orStreamCreate"), get_pointer("orEventCreate")
        def child():
            print(lib.orIsInBadFork(), get_int("orGetDeviceCount"), get_int("orGetDevice"), ctypes.string_at(pinned, 4))
            call("orSetDevice", 1)
            call("orFree", pointer), call("orFreeHost", pinned)
            call("orStreamDestroy", stream), call("orEventDestroy", event)
            lib.orRethrowLaunchFailure()
            works = ("orGetApiVersion", "orGetDeviceCount", "orGetDevice", "orSetDevice", "orRequestAllocation")
            works += ("orRequestStream", "orSetGuardSize", "orFindExecution")
            does_nothing = ("orFree", "orFreeHost", "orHostUnregister", "orIpcCloseMemHandle", "orStreamDestroy")
            does_nothing += ("orEventDestroy", "orGraphDestroy", "orGraphExecDestroy", "orActivityUnsubscribe")
            does_nothing += ("orFaultRemove",)
            for name, arguments in SIGNATURES.items():
                if name not in works + does_nothing:
                    code = getattr(lib, name)(*[HostFn() if a is HostFn else a() for a in arguments])
                    print(name, lib.orGetErrorName(code), lib.orGetLastErrorMessage(), lib.orGetLastError())
            in_child(lambda: print("grandchild", lib.orIsInBadFork()))
        in_child(child)
        print(lib.orIsInBadFork(), attributes(pointer).size, attributes(pinned).size)
        call("orFree", pointer), call("orFreeHost", pinned)
        call("orStreamDestroy", stream), call("orEventDestroy", event)
    """
    first, *calls, grandchild, last = output_of(IN_CHILD + textwrap.dedent(code)).splitlines()
    assert first == "True 2 0 b'kept'"
    assert len(calls) > 25
    for line in calls:
        name, _, rest = line.partition(" ")
        expected = repr(BAD_FORK.encode())
        assert rest == f"b'orErrorInitializationError' {expected} 3", name
    assert (grandchild, last) == ("grandchild True", "False 100 100")


def test_a_child_forked_before_the_start_has_devices_of_its_own() -> None:
    code = """
        get_int("orGetDeviceCount")
        in_child(lambda: print(lib.orIsInBadFork(), malloc(1) != 0))
        print(malloc(1) != 0)
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)).splitlines() == ["False True", "True"]


def test_forks_while_other_threads_use_the_device_do_not_hang() -> None:
    code = """
        import threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of just this
        stop = threading.Event()
        def use():
            while not stop.is_set():
                pointer = malloc(4096)
                upload(pointer, b"x" * 4096)
                call("orFree", pointer)
                call("orStreamDestroy", get_pointer("orStreamCreate"))
        threads = [threading.Thread(target=use) for _ in range(3)]
        for thread in threads: thread.start()
        for _ in range(50):
            in_child(lambda: (call("orFree", 1), lib.orMalloc(ctypes.byref(POINTER()), 1), get_int("orGetDeviceCount")))
        stop.set()
        for thread in threads: thread.join()
        print("done")
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)) == "done"


def test_a_forked_child_shares_pinned_memory_with_its_parent() -> None:
    code = """
        first, second = get_pointer("orMallocHost", 5000), get_pointer("orMallocHost", 10)
        ctypes.memmove(first, b"old", 3)
        (wake, wakes), (tell, tells) = os.pipe(), os.pipe()
        def child():
            ctypes.memmove(second, b"from child", 10)
            in_child(lambda: ctypes.memmove(first + 4990, b"grandchild", 10))
            os.write(tells, b".")
            os.read(wake, 1)
            print(ctypes.string_at(first, 3))
        if os.fork() == 0:
            child()
            sys.stdout.flush()
            os._exit(0)
        os.read(tell, 1)
        print(ctypes.string_at(second, 10), ctypes.string_at(first + 4990, 10), flush=True)
        ctypes.memmove(first, b"new", 3)
        call("orFreeHost", first)  # the child keeps its mapping
        os.write(wakes, b".")
        print("status", os.wait()[1])
        third = get_pointer("orMallocHost", 10)
        in_child(lambda: ctypes.memmove(third, b"second one", 10))
        print(ctypes.string_at(third, 10))
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)).splitlines() == [
        "b'from child' b'grandchild'",
        "b'new'",
        "status 0",
        "b'second one'",
    ]


def test_in_the_schedule_late_a_parent_waits_for_its_child_unless_the_child_waits_for_something() -> None:
    code = """
        import time
        from openreg_c import CHAOS
        call("orSetExecutionMode", CHAOS, 0)
        pinned = get_pointer("orMallocHost", 3)
        def write_after(first_of_child):
            ctypes.memmove(pinned, b"old", 3)
            if os.fork() == 0:
                first_of_child()
                print(ctypes.string_at(pinned, 3), flush=True)
                os._exit(0)
            ctypes.memmove(pinned, b"new", 3)
            os.write(wakes, b".")
            os.wait()
        wake, wakes = os.pipe()
        write_after(lambda: time.sleep(0.5))
        os.read(wake, 1)
        write_after(lambda: os.read(wake, 1))
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)).splitlines() == ["b'old'", "b'new'"]


def test_threads_that_write_to_pinned_memory_during_a_fork_lose_nothing() -> None:
    # A thread that writes during the move gets SIGSEGV, waits in the handler, and writes again.
    code = """
        import faulthandler, threading, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of just this
        size = 4 << 20
        blocks = [get_pointer("orMallocHost", size) for _ in range(2)]
        faulthandler.enable()  # must not report a crash
        written, stop = [0, 0], threading.Event()
        def write(index):
            while not stop.is_set():
                written[index] += 1
                ctypes.memset(blocks[index], written[index] & 0xFF, size)
        threads = [threading.Thread(target=write, args=(index,)) for index in range(2)]
        for thread in threads: thread.start()
        while 0 in written: pass
        in_child(lambda: None)
        before = list(written)
        while any(now < then + 2 for now, then in zip(written, before)): pass  # until both have gone on
        stop.set()
        for thread in threads: thread.join()
        print(*(ctypes.string_at(block, size) == bytes([n & 0xFF]) * size for block, n in zip(blocks, written)))
    """
    assert output_of(IN_CHILD + textwrap.dedent(code)) == "True True"


def test_a_child_gets_a_copy_of_pinned_memory_that_cannot_be_shared_and_stderr_says_why() -> None:
    code = """
        import resource
        pinned = get_pointer("orMallocHost", 1 << 20)
        ctypes.memmove(pinned, b"old", 3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))
        in_child(lambda: (print(ctypes.string_at(pinned, 3)), ctypes.memmove(pinned, b"new", 3)))
        print(ctypes.string_at(pinned, 3), lib.orPeekAtLastError())
    """
    result = run_python(IN_CHILD + textwrap.dedent(code), status=0)
    assert result.stdout.splitlines() == ["b'old'", "b'old' 0"]
    assert result.stderr == (
        "openreg: fork: cannot move 1.00 MiB of pinned memory to a memfd: Too many open files. Free host memory, or "
        "raise the limit on open files (ulimit -n). The child gets a copy of this memory.\n"
    )


def test_a_child_that_touches_its_parents_memory_ends_with_an_explanation() -> None:
    code = """
        pointer = malloc(1)
        print(hex(pointer), flush=True)
        for address in pointer, lib.orGetKernelPointer(pointer):
            in_child(lambda: print(lib.orGetKernelPointer(pointer) == pointer, ctypes.string_at(address, 1)))
    """
    result = run_python(IN_CHILD + textwrap.dedent(code))
    pointer, *statuses = result.stdout.splitlines()
    assert statuses == ["status 11", "status 11"] or statuses == ["status 139", "status 139"]
    lines = result.stderr.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert re.fullmatch(
            r"openreg: a forked child accessed device memory of its parent at 0x\w+\. A child has no device memory\. "
            r"To use OpenReg with multiprocessing, you must use the 'spawn' start method\.",
            line,
        )
    assert f" {pointer}." in lines[0]


QUEUE_MUCH = """
    import faulthandler, sys, threading, time
    stream = get_pointer("orStreamCreate")
    pointer, pinned = malloc(1 << 20), get_pointer("orMallocHost", 1 << 20)
    started = threading.Event()
    slow = HostFn(lambda _, begin=started.set, sleep=time.sleep: (begin(), sleep(2.5)))
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(slow))  # queued work must outlive this module
    # In the mode chaos, queued work runs at the exit of the process, when Python has ended: so it is a function of C.
    slow_in_c = ctypes.cast(ctypes.CDLL(None).usleep, HostFn)
    threading.Thread(target=call, args=("orLaunchHostFunc", stream, slow, None), daemon=True).start()
    started.wait()
    for number in range(250):
        call("orLaunchHostFunc", stream, slow_in_c, 2_500_000)
        call("orMemcpyAsync", pinned, pointer, 1 << 20, DEFAULT, stream)
        call("orMemcpyAsync", pointer, b"x" * 100, 100, DEFAULT, stream)
        call("orMemsetAsync", pointer, 1, 1 << 20, None)
    event = get_pointer("orEventCreate")
    call("orEventRecord", event, stream)
    call("orStreamWaitEvent", None, event, 0)
    call("orMemsetAsync", pointer, 1, 1 << 20, None)
"""


@pytest.mark.parametrize("execution", MODES)
def test_a_child_forked_while_work_is_queued_is_told_to_spawn_and_ends(execution: str) -> None:
    code = """
        import warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 and later warn of just this
        pid = os.fork()
        if pid == 0:
            for name, *arguments in ("orStreamSynchronize", stream), ("orEventQuery", event), ("orDeviceSynchronize",):
                print(getattr(lib, name)(*arguments), lib.orGetLastErrorMessage() == BAD_FORK)
            call("orStreamDestroy", stream), call("orEventDestroy", event)
            call("orFree", pointer), call("orFreeHost", pinned)
            sys.exit(0)  # through the exit handlers
        print("child", os.waitpid(pid, 0)[1])
        print("parent", lib.orEventQuery(event))
    """
    bad_fork = (
        b"Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the "
        b"'spawn' start method"
    )
    output = output_of(
        f"BAD_FORK = {bad_fork!r}\n" + textwrap.dedent(QUEUE_MUCH) + textwrap.dedent(code), OPENREG_EXECUTION=execution
    )
    assert output.splitlines() == ["3 True"] * 3 + ["child 0", f"parent {NOT_READY}"]


# ---- Threads ---------------------------------------------------------------------------------------------------------


def test_threads_share_the_device() -> None:
    failures: list[BaseException] = []
    free_before, _ = memory_info()

    def work(seed: int) -> None:
        try:
            handle = get_pointer("orStreamCreate")
            mark = get_pointer("orEventCreate")
            for round_number in range(200):
                size = (seed * 7919 + round_number * 104729) % 30000 + 1
                data = bytes([seed]) * size
                first, second = malloc(size), malloc(size)
                call("orMemcpyAsync", first, ctypes.c_char_p(data), size, HOST_TO_DEVICE, handle)
                call("orMemcpyAsync", second, first, size, DEVICE_TO_DEVICE, handle)
                call("orEventRecord", mark, handle)
                call("orEventSynchronize", mark)
                assert download(second, size) == data
                assert attributes(second + size - 1).base == second
                call("orFree", first)
                call("orFree", second)
            call("orEventDestroy", mark)
            call("orStreamDestroy", handle)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert memory_info()[0] == free_before


END_OF_THREAD = r"""
#include <openreg_launch.h>
#include <pthread.h>
#include <cstdio>
int main() {
  orStream_t stream;
  orStreamCreate(&stream);
  int ran = 0;
  for (int i = 0; i < 3; ++i) {
    orLaunchHostFunc(stream, [](void*) { pthread_exit(nullptr); }, nullptr);
    orLaunchHostFunc(stream, [](void* data) { ++*static_cast<int*>(data); }, &ran);
  }
  const orError_t error = orStreamSynchronize(stream);
  std::printf("%d %d\n", error, ran);
}
"""


@pytest.mark.parametrize("execution", ["async", "chaos"])
def test_work_goes_on_after_a_function_that_ends_its_thread(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, END_OF_THREAD)
    assert run_program(program, OPENREG_EXECUTION=execution) == "0 3\n"


# ---- Exit ------------------------------------------------------------------------------------------------------------


def test_calls_from_exit_handlers_and_destructors_are_safe(tmp_path: Path) -> None:
    source = r"""
        #include <cstdio>
        #include <cstdlib>
        #include "openreg_launch.h"
        void* data;
        orStream_t stream;
        void use(const char* when) {
          orError_t error = orLaunchKernel(stream, [] {});
          void* more;
          error = error ? error : orMalloc(&more, 8);
          error = error ? error : orFree(more);
          std::printf("%s %d\n", when, error);
        }
        struct AtExit {
          ~AtExit() { use("destructor"); orFree(data); orStreamDestroy(stream); }
        } global;
        int main() {
          std::atexit([] { use("atexit"); });
          orMalloc(&data, 100);
          orStreamCreate(&stream);
        }
    """
    program = compile_program(cpp_compiler(), tmp_path, source)
    programs.run(program, status=0, output="atexit 0\ndestructor 0\n", errors="")


@pytest.mark.parametrize("execution", ["inline", "async"])  # in chaos this work runs, for at most 10 seconds
def test_a_process_that_exits_with_work_queued_ends_at_once(execution: str) -> None:
    # All of the queued work would take longer than the time limit of run_python().
    run_python(QUEUE_MUCH, OPENREG_EXECUTION=execution, status=0, output="", errors="")


EXIT = r"""
#include <openreg_launch.h>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
std::atomic<bool> started, finished, ranLater;
std::thread::id mainThread = std::this_thread::get_id();
orStream_t stream;
struct Last {
  ~Last() {
    bool inlineNow = false;
    orError_t launched = orLaunchKernel(stream, [&] { inlineNow = std::this_thread::get_id() == mainThread; });
    orError_t waited = orDeviceSynchronize();
    std::printf("finished %d, later %d, inline %d, errors %d %d\n", +finished, +ranLater, inlineNow, launched, waited);
  }
} last;
int main() {
  orStreamCreate(&stream);
  orLaunchKernel(stream, [] {
    started = true;
    while (!orExecutesInline()) std::this_thread::yield(); // the mode changes when the exit reaches the device
    finished = true;
  });
  orLaunchKernel(stream, [] { ranLater = true; });
  while (!started) std::this_thread::yield();
  std::exit(0);
}
"""


def test_what_runs_at_exit_is_finished_and_what_is_queued_abandoned(tmp_path: Path) -> None:
    program = compile_program(cpp_compiler(), tmp_path, EXIT)
    output = run_program(program, OPENREG_EXECUTION="async")
    assert output == "finished 1, later 0, inline 1, errors 0 0\n"


EXIT_INSIDE = r"""
#include <openreg_launch.h>
#include <cstdlib>
int main() {
  orLaunchKernel(nullptr, [] { std::exit(0); });
  orDeviceSynchronize();
  for (;;) {}
}
"""


@pytest.mark.parametrize("execution", MODES)
def test_a_kernel_that_ends_the_process_does_not_wait_for_itself(tmp_path: Path, execution: str) -> None:
    program = compile_program(cpp_compiler(), tmp_path, EXIT_INSIDE)
    assert run_program(program, OPENREG_EXECUTION=execution) == ""
