"""Every lock of the project, and its answers to the two rules of csrc/runtime/OpenRegMutex.h.

The rules say what may be waited for while a lock is held, and what a forked child does. A lock that is not listed here
fails the first test.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from programs import Run

ROOT = Path(__file__).parents[2]
SOURCES = ("csrc", "third_party/openreg/csrc", "torch_openreg/csrc")

# File and name of a lock -> why no thread waits while it holds the lock, and why a forked child does not wait for it.
LOCKS = {
    ("csrc/graph/DeviceGraph.cpp", "capturing_mutex"): ("a table, and the generators of a graph", "ForkSafeMutex"),
    ("csrc/profiler/ActivityRecorder.cpp", "mutex"): ("a list of threads' records", "ForkSafeMutex"),
    ("csrc/profiler/Utilization.cpp", "mutex"): ("a table", "of one call; _lazy_init() refuses"),
    ("csrc/simulator/dry/Clock.cpp", "clock_mutex"): ("numbers and tables", "ForkSafeMutex"),
    ("csrc/simulator/dry/Contents.cpp", "host_mutex"): ("a table", "ForkSafeMutex"),
    ("csrc/simulator/dry/Dry.cpp", "workspaces_mutex"): ("a table; memory is allocated outside", "ForkSafeMutex"),
    ("csrc/simulator/dry/Dry.cpp", "reads_mutex"): ("a table; Python is asked outside", "ForkSafeMutex"),
    ("csrc/simulator/transport/DryEngine.cpp", "mutex"): ("a table; Python is asked outside", "ForkSafeMutex"),
    ("csrc/simulator/sanitizer/HostAccess.cpp", "mutex"): (
        "a table; below it PyTorch's registry of operators",
        "ForkSafeMutex",
    ),
    ("csrc/simulator/sanitizer/SessionState.cpp", "session_mutex"): (
        "below it only the device's own locks; Python is asked outside",
        "ForkSafeMutex",
    ),
    ("csrc/runtime/memory/OpenRegDeviceAllocator.h", "init_mutex_"): (
        "reads settings, and makes the allocators of the devices",
        "ForkSafeMutex",
    ),
    ("csrc/runtime/memory/OpenRegCachingAllocator.h", "mutex_"): (
        "below it only the device's own locks; waits and Python's observers come after unlock(); events are made in "
        "internal calls, in which no subscriber asks Python",
        "mutex() refuses; freeing does nothing",
    ),
    ("csrc/runtime/memory/OpenRegHostAllocator.cpp", "mutex_"): ("a table of blocks", "ForkSafeMutex"),
    ("csrc/runtime/OpenRegFunctions.cpp", "start_mutex"): ("registrations", "ForkSafeMutex"),
    ("csrc/runtime/OpenRegGenerator.h", "mutex"): (
        "launches with orLaunchNoWait; observers take the line before",
        "cpu_generator() refuses",
    ),
    ("csrc/runtime/OpenRegMutex.h", "mutex_"): ("the member of ForkSafeMutex", "held across fork()"),
    ("csrc/runtime/OpenRegSharing.cpp", "mutex"): ("lists of slots", "release_sent() and the others refuse"),
    ("csrc/runtime/OpenRegStream.cpp", "create"): ("creates a stream", "create() refuses"),
    ("csrc/distributed/CompletionHook.h", "mutex_"): (
        "a list of calls; the hook runs outside",
        "taken by the engine's threads; a child has none",
    ),
    ("csrc/simulator/transport/GlooConnection.h", "mutex_"): (
        "a set of works",
        "taken by the engine's threads; a child has none",
    ),
    ("csrc/simulator/transport/GlooEngine.h", "mutex_"): (
        "a pointer",
        "taken by the engine's threads; a child has none",
    ),
    ("csrc/distributed/CollectiveCall.h", "mutex"): ("a failure", "taken by the engine's threads"),
    ("csrc/distributed/GroupState.h", "mutex_"): ("a pointer", "submit() refuses"),
    ("csrc/distributed/CommunicationStreams.h", "mutex_"): ("a table of streams", "submit() refuses"),
    ("third_party/openreg/csrc/occl/communicator.h", "mutex_"): (
        "held while other ranks are waited for: it is the turn of the group's threads, and nobody else's",
        "taken by the engine's threads",
    ),
    ("third_party/openreg/csrc/occl/communicator.h", "sending"): (
        "held while the receiver is waited for: one message follows the other",
        "taken by the engine's threads",
    ),
    ("third_party/openreg/csrc/occl/communicator.h", "receiving"): (
        "held while the sender is waited for: one message follows the other",
        "taken by the engine's threads",
    ),
    ("csrc/distributed/InterpreterUse.cpp", "mutex"): (
        "a number",
        "taken by the engine's threads; end_interpreter_uses() asks orIsInBadFork()",
    ),
    ("third_party/openreg/csrc/occl/threads.cpp", "mutex"): ("a queue; tasks run outside", "submit() refuses"),
    ("csrc/distributed/WorkOCCL.h", "mutex_"): (
        "a list; below it nothing",
        "taken by the device's threads, and by the end of a group: a child's has never begun",
    ),
    ("csrc/distributed/WorkOCCL.h", "mutex"): ("flags; futures complete outside", "wait_on_stream() refuses"),
    ("csrc/aten/native/OperatorTraits.cpp", "traits_mutex"): ("a table of traits", "ForkSafeMutex"),
    ("csrc/aten/native/FallbackPolicy.cpp", "policy_mutex"): ("a setting", "ForkSafeMutex"),
    ("third_party/openreg/csrc/activity.cpp", "subscriptions"): ("a list; subscribers run outside", "refused"),
    ("third_party/openreg/csrc/simulator/chaos.cpp", "mutex"): ("numbers, and ranges of bytes", "deviceCall() refuses"),
    ("third_party/openreg/csrc/device_memory.h", "mutex_"): ("maps and memory mappings", "deviceCall() refuses"),
    ("third_party/openreg/csrc/segfault.h", "mutex_"): ("swaps a signal handler", "deviceCall() refuses"),
    ("third_party/openreg/csrc/simulator/dry.cpp", "mutex_"): ("a map", "isInBadFork() is asked"),
    ("third_party/openreg/csrc/simulator/faults.cpp", "mutex"): (
        "a list; delays come after it",
        "isInBadFork() is asked",
    ),
    ("third_party/openreg/csrc/simulator/forks.cpp", "forking"): (
        "held for a fork(), between its handlers",
        "both processes unlock it after the fork",
    ),
    ("third_party/openreg/csrc/graph_capture.cpp", "graphLock"): (
        "nodes and captures; below it only the scheduler's lock; objects of a graph are destroyed outside",
        "deviceCall() refuses",
    ),
    ("third_party/openreg/csrc/ipc_event.cpp", "mutex_"): (
        "a list; streams are completed outside",
        "deviceCall() refuses; the thread of the list is not in a child",
    ),
    ("third_party/openreg/csrc/pinned_memory.cpp", "mutex"): ("a map", "deviceCall() refuses"),
    ("third_party/openreg/csrc/runtime.cpp", "startMutex"): ("the start of the simulator", "held across fork()"),
    ("third_party/openreg/csrc/scheduler_state.h", "mutex"): (
        "queues; work runs and threads sleep outside, sleepUntil() gives it up",
        "deviceCall() refuses, orKernelEnd() and exit handlers ask isInBadFork()",
    ),
    ("third_party/openreg/csrc/stream.h", "mutex_"): ("a table of handles", "deviceCall() refuses"),
}

DECLARATION = re.compile(
    r"^\s*(?:static |inline |thread_local )*"
    r"(?:std::(?:recursive_|shared_|timed_)*mutex|Mutex|(?:c10::openreg::)?ForkSafeMutex) (\w+)(?:\{\})?;",
    re.M,
)


def declared() -> set[tuple[str, str]]:
    return {
        (path.relative_to(ROOT).as_posix(), name)
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".h", ".cpp")
        for name in DECLARATION.findall(path.read_text())
    }


def test_every_lock_has_an_answer_and_every_answer_a_lock() -> None:
    assert declared() == set(LOCKS)


@pytest.mark.parametrize("pattern", ["std::call_once", "std::once_flag", "std::recursive_mutex", "std::shared_mutex"])
def test_no_lock_is_of_a_kind_that_hides_from_the_list(pattern: str) -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for folder in SOURCES
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".h", ".cpp") and re.search(pattern, path.read_text())
    ]
    assert found == []


# ---- threads that need the interpreter while others wait for the device

THREADS = """
import faulthandler, threading, time, torch
faulthandler.dump_traceback_later(600, exit=True)
torch.openreg.execution_mode({mode!r})
{prepare}
stop = False
def until_the_end(fn):
    def loop():
        while not stop:
            fn()
    return loop
threads = [threading.Thread(target=until_the_end(fn), daemon=True) for fn in ({functions})]
for thread in threads: thread.start()
time.sleep(1)
stop = True
for thread in threads: thread.join()
print("ended")
"""

RACES = {
    "a launch's line of Python, and the generator": (
        "torch.openreg.record_launch_sites()",
        "lambda: torch.rand(4, device='openreg'), lambda: torch.rand(4, device='openreg'), "
        "torch.openreg.initial_seed, torch.openreg.get_rng_state",
    ),
    "the sanitizer's line of a kernel that draws random numbers, and the generator": (
        "torch.openreg.sanitizer.enable('race')",
        "lambda: torch.rand(4, device='openreg'), lambda: torch.rand(4, device='openreg'), "
        "torch.openreg.initial_seed, torch.openreg.get_rng_state",
    ),
    "the sanitizer, a free of memory that another stream has used, and the allocator": (
        """
torch.openreg.sanitizer.enable("race")
side = torch.openreg.Stream()
def free():
    with torch.openreg.stream(side): x = torch.ones(10, device="openreg")
    x.record_stream(torch.openreg.default_stream())
""",
        "free, torch.openreg.empty_cache, torch.openreg.memory_stats",
    ),
    "a kernel in Python, and an assignment that keeps the interpreter": (
        """
lib = torch.library.Library("adv", "DEF"); lib.define("f(Tensor x) -> Tensor"); lib.impl("f", lambda x: x * 2, "CPU")
x = torch.ones(10, device="openreg")
def assign(): x[3] = 1.0
""",
        "lambda: torch.ops.adv.f(x), lambda: torch.ops.adv.f(x), assign, assign",
    ),
    "a kernel in Python that draws random numbers of the device, and others that draw": (
        """
lib = torch.library.Library("adv", "DEF"); lib.define("f(Tensor x) -> Tensor")
lib.impl("f", lambda x: x + torch.rand(10, device="openreg").cpu(), "CPU")
x = torch.ones(10, device="openreg")
""",
        "lambda: torch.ops.adv.f(x), lambda: x.uniform_(), torch.openreg.initial_seed",
    ),
    "a kernel in Python that frees and allocates, and statistics": (
        """
lib = torch.library.Library("adv", "DEF"); lib.define("f(Tensor x) -> Tensor")
lib.impl("f", lambda x: x + torch.ones(10, device="openreg").sum().item(), "CPU")
x = torch.ones(10, device="openreg")
""",
        "lambda: torch.ops.adv.f(x), torch.openreg.empty_cache, torch.openreg.memory_stats, lambda: x.add_(1)",
    ),
    "kernels in Python that work on each other's streams": (
        """
one, two = torch.openreg.Stream(), torch.openreg.Stream()
x = torch.ones(10, device="openreg")
torch.openreg.synchronize()
other = {one: two, two: one}
def inner(y):
    with torch.openreg.stream(other[torch.openreg.current_stream()]):
        x.add(1)
    return y * 2
lib = torch.library.Library("adv", "DEF"); lib.define("f(Tensor x) -> Tensor"); lib.impl("f", inner, "CPU")
def on(stream):
    def run():
        with torch.openreg.stream(stream):
            torch.ops.adv.f(x)
    return run
""",
        "on(one), on(two), on(one), on(two)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
@pytest.mark.parametrize("race", RACES)
def test_threads_that_need_the_interpreter_and_threads_that_wait_all_go_on(
    run_python: Run, race: str, mode: str
) -> None:
    prepare, functions = RACES[race]
    run_python(THREADS.format(mode=mode, prepare=prepare, functions=functions), status=0, output="ended\n")


# ---- forks while other threads hold locks

FORKS = """
import os, signal, threading, torch
x = torch.ones(1000, device="openreg")
pinned = torch.ones(1000).pin_memory()
pinned.to("openreg", non_blocking=True)
# These calls import modules before the forks: a child forked during an import hangs in a lock of Python's own.
torch.openreg.Event(), torch.openreg.MemPool()
stop = False
def busy():
    while not stop:
        torch.rand(1000, device="openreg"); torch.ones(10).pin_memory().to("openreg", non_blocking=True)
        torch.openreg.memory_stats(); torch.openreg.Event().record(torch.openreg.Stream())
threads = [threading.Thread(target=busy, daemon=True) for _ in range(3)]
for thread in threads: thread.start()
for child, expected in CHILDREN.items():
    for _ in range(10):
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGALRM, signal.SIG_DFL); signal.alarm(300)
            try:
                exec(child)
            except RuntimeError as error:
                os._exit(3 if str(error).startswith("Cannot re-initialize OpenReg in forked subprocess.") else 4)
            os._exit(0)
        if (status := os.waitpid(pid, 0)[1]) != expected: print(child, status)
stop = True
for thread in threads: thread.join()
print("ended")
"""

REFUSED, FINE = 3 << 8, 0
CHILDREN = {
    "torch.openreg.get_rng_state()": REFUSED,
    "torch.openreg.initial_seed()": REFUSED,
    "torch.rand(3, device='openreg')": REFUSED,
    "x.add_(1)": REFUSED,
    "x.record_stream(torch.openreg.Stream())": REFUSED,
    "torch.ones(3).pin_memory()": REFUSED,
    "pinned.to('openreg', non_blocking=True)": REFUSED,
    "torch.openreg.MemPool()": REFUSED,
    "torch.openreg.memory_snapshot()": REFUSED,
    "torch.openreg.sanitizer.enable('race')": REFUSED,
    "torch.manual_seed(3)": FINE,
    "del pinned": FINE,
    "del x": FINE,
    "torch.openreg.empty_cache()": FINE,
    "torch.openreg.memory_stats()": FINE,
    "torch.openreg.ipc_collect()": FINE,
    "torch.openreg.fallback.counts()": FINE,
    "torch.ones(3) + 1": FINE,
}


@pytest.mark.slow
def test_a_child_forked_while_other_threads_use_the_device_never_hangs(run_python: Run) -> None:
    run_python(f"CHILDREN = {CHILDREN}\n{FORKS}", status=0, output="ended\n")


def test_a_pinned_tensor_that_was_copied_is_dropped_by_a_forked_child(run_python: Run) -> None:
    run_python(
        """
import os, torch
pinned = torch.ones(1000).pin_memory()
copy = pinned.to("openreg", non_blocking=True)
torch.accelerator.synchronize()
pid = os.fork()
if pid == 0:
    del pinned
    os._exit(0)
print(os.waitpid(pid, 0)[1])
""",
        status=0,
        output="0\n",
        errors="",
    )
