"""Runs within the checked program: writes down what one process has done, when it ends.

`import torch` of every process of a run imports this module (the variable of _processes.py). Only with "record" does it
watch lines: before each line of the program's own files it reads how many calls of each kind there were, so that the
n-th allocation, launch, copy or message has a line. With "modules" it also writes what was imported. With "sanitize" the sanitizer reports and does not raise, so that
one run shows all findings.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import json
import mmap
import multiprocessing
import multiprocessing.spawn
import multiprocessing.util
import os
import sys
import threading
from types import FrameType
from typing import Any

import torch

from torch_openreg import _C
from torch_openreg.simulator import _bindings
from torch_openreg.simulator._faults import POINTS
from torch_openreg.simulator.check._own import is_own
from torch_openreg.simulator.check._plan import FAULTS, LAUNCHER, SANITIZER, STACKS

NEVER = 2**64 - 1  # the number of a call that no program reaches: such a fault only counts the calls


class LastLine:
    """The line that runs, in a file that is there also if a signal ends the process."""

    SIZE = 4096

    def __init__(self, path: str) -> None:
        with open(path, "w+b") as file:
            file.truncate(self.SIZE)
            self._map = mmap.mmap(file.fileno(), self.SIZE)

    def write(self, file: str, line: int) -> None:
        text = f"{file}:{line}\n".encode()
        self._map[: len(text)] = text


class Places:
    """How many calls of each kind each line of the program has made, in their order."""

    def __init__(self, counters: dict[str, int], last_line: LastLine | None) -> None:
        self._counters = counters
        self._last_line = last_line
        self._seen = dict.fromkeys(counters, 0)
        self._line: tuple[str, int] | None = None
        self.rows: dict[str, list[list[Any]]] = {point: [] for point in counters}
        self.printed: list[list[Any]] = []  # the number of a line of the output, and where it was printed
        self.forks: list[list[Any]] = []  # the lines that forked a process which shares pinned memory

    def settle(self, file: str = "", line: int = 0) -> None:
        """The calls since the last time belong to the line that ran. ``file``: the line that runs now."""
        for point, handle in self._counters.items():
            count, last = _bindings._count_fault(handle)[0], self._seen[point]
            if count > last:
                rows = self.rows[point]
                if self._line and rows and rows[-1][2:] == [*self._line] and rows[-1][1] == last:
                    rows[-1][1] = count
                elif self._line:
                    rows.append([last + 1, count, *self._line])
                self._seen[point] = count
        if file:
            self._line = file, line
            if self._last_line:
                self._last_line.write(file, line)

    def watch(self) -> None:
        def trace(frame: FrameType, event: str, argument: object) -> Any:
            file = frame.f_code.co_filename
            if event == "call":
                return trace if is_own(file) else None
            self.settle(file, frame.f_lineno)
            return trace

        frame: FrameType | None = sys._getframe()
        while frame:  # the frames that run already
            if is_own(frame.f_code.co_filename):
                frame.f_trace = trace
            frame = frame.f_back
        threading.settrace(trace)
        sys.settrace(trace)
        os.register_at_fork(after_in_parent=self._note_fork, after_in_child=self._stop_in_child)
        self._watch_output()

    def _note_fork(self) -> None:
        if self._line and _has_pinned_memory():
            self.forks.append([*self._line])

    def _stop_in_child(self) -> None:
        self._last_line = None  # it is the parent's
        if _C._isInBadFork():  # the worker of a data loader makes no calls, and may not ask for their number
            threading.settrace(None)
            sys.settrace(None)

    def _watch_output(self) -> None:
        write, lines = sys.stdout.write, 0

        def note(text: str) -> int:
            nonlocal lines
            if self._line and (not self.printed or self.printed[-1][0] != lines):
                self.printed.append([lines, *self._line])
            lines += text.count("\n")
            return write(text)

        sys.stdout.write = note  # type: ignore[method-assign]


def _line_of(report: Any) -> tuple[str, int]:
    """The line of the program that a report of the sanitizer is about: that of the access which is too early."""
    for access in report.accesses:
        file, _, rest = access.site.rpartition(":")
        number = rest.partition(" ")[0]
        if file and number.isdigit() and is_own(file):
            return file, int(number)
    return "", 0


def _runs_in_a_thread() -> bool:
    """Whether a daemon thread still runs lines of the program, and so needs the global variables."""
    for thread, frame in sys._current_frames().items():
        each: FrameType | None = frame if thread != threading.get_ident() else None
        while each:
            if each.f_globals.get("__name__") == "__main__" or is_own(each.f_code.co_filename):
                return True
            each = each.f_back
    return False


def _drop_globals() -> list[BaseException]:
    """Empties the modules of the program: what they hold is no leak. The exceptions that it kept are returned, because
    their frames hold memory that nobody needs."""
    kept = [value for value in gc.get_objects() if issubclass(type(value), BaseException)]
    for name, module in {**sys.modules}.items():
        if name == "__main__" or is_own(getattr(module, "__file__", None) or "<none>"):
            vars(module).clear()
    gc.collect()
    return kept


def _separate_output(folder: str, name: str) -> None:
    """Several processes that print at the same time mix their lines, so each that another has started has a file.

    Not if its output is a pipe of the program.
    """
    with contextlib.suppress(OSError):
        if os.readlink("/proc/self/fd/1").startswith(os.path.dirname(folder) + os.sep):
            if sys.stdout is not None:
                sys.stdout.flush()
            file = os.open(os.path.join(folder, f"{name}.stdout"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(file, 1)
            os.close(file)


def _has_pinned_memory() -> bool:
    with contextlib.suppress(RuntimeError):  # the device has not started
        return bool(_C._host_memory_stats()["allocated_bytes"]["current"])
    return False


def _name_of_process() -> str:
    """Sorts as the ranks, or as the processes that multiprocessing has started in their order."""
    number = multiprocessing.current_process().name.rpartition("-")[2]
    return f"{os.environ.get('RANK', ''):0>6}-{number:0>6}"


def _count_calls() -> dict[str, int]:
    """Begins to count the calls of each kind, and the waits of the host."""
    _bindings._count_waits()
    return {
        point: _bindings._inject_fault(POINTS[point], -1, (NEVER, NEVER), 0, (1.0, 0), 0, 2, 0, 0.0, f"{point}:{NEVER}")
        for point in FAULTS
    }


def _libraries() -> list[str]:
    """The modules of libraries that the process has imported, in the order in which their imports began.

    Not if pytest has: it rewrites modules that it imports, and says so if they are imported already.
    """
    names = []
    for name, module in {**sys.modules}.items():
        spec = getattr(module, "__spec__", None)
        origin = getattr(spec, "origin", None) or "<none>"
        if getattr(spec, "name", None) == name and not is_own(origin) and not name.startswith("torch_openreg"):
            names.append(name)
    return [] if "pytest" in names else names


def _resident() -> int:
    """The bytes of this process in RAM when they were most."""
    with open("/proc/self/status") as file:
        return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")), 0)


def _record(counters: dict[str, int], places: Places, is_started: bool) -> dict[str, Any]:
    return {
        "pid": os.getpid(),
        "rank": os.environ.get("RANK"),
        "is_started": is_started,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "counts": {point: _bindings._count_fault(handle)[0] for point, handle in counters.items()},
        "places": places.rows,
        "printed": places.printed,
        "forks": places.forks,
        "resident": _resident(),
        "waits": _bindings._wait_count(),
        "allocated": 0,
        "peak": 0,
        "forced": 0,
        "faults": [],
        "reports": [],
    }


def start() -> None:
    faulthandler.register(STACKS, file=2)
    folder, _, what = os.environ["OPENREG_CHECK"].partition(":")
    is_started = "RANK" in os.environ or "--multiprocessing-fork" in sys.orig_argv  # by another process
    if is_started:
        _separate_output(folder, _name_of_process())
    launcher = os.environ.get(LAUNCHER, "")
    if os.path.dirname(launcher) == os.path.dirname(os.path.dirname(folder)):  # `check` has written it
        multiprocessing.spawn.set_executable(launcher)
    counters = _count_calls()
    is_recorded = what == "record"
    last_line = os.path.join(folder, f"{os.getpid()}-{os.environ.get('RANK', '')}.line")
    places = Places(counters, LastLine(last_line) if is_recorded else None)
    if is_recorded:
        places.watch()
    session = None
    if what == "sanitize":
        from torch_openreg.openreg import sanitizer

        session = sanitizer.enable(SANITIZER, mode="report")
        sanitizer._watch_growth()

    def write() -> None:
        sys.settrace(None)
        if _C._isInBadFork():
            return
        places.settle()
        record = _record(counters, places, is_started)
        if what == "modules":
            record["modules"] = _libraries()
        if session is not None:
            from torch_openreg.openreg import sanitizer

            with contextlib.suppress(Exception):  # a wait for a lost device, or for a rank that has died
                session._finish()
            reports = [*sanitizer._leaks_at_exit(session._earlier), *sanitizer._grown()]
            record["reports"] = [[report.kind, *_line_of(report), report.text] for report in reports]
        if faults := sys.modules.get("torch_openreg.openreg.faults"):
            record["faults"] = [
                {"text": count.text, "seen": count.seen, "fired": count.fired}
                for count in (faults._of_environment.counts if faults._of_environment else [])
            ]
        if torch._C._accelerator_isAllocatorInitialized():
            indices = range(_C._get_device_count())
            record["forced"] = _bindings._forced_count()
            record["peak"] = sum(torch.accelerator.max_memory_allocated(index) for index in indices)
            if not _runs_in_a_thread():
                kept = _drop_globals()
                record["allocated"] = sum(torch.accelerator.memory_allocated(index) for index in indices)
                del kept
        with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
            json.dump(record, file)

    def begin_in_child(_: object) -> None:
        _separate_output(folder, _name_of_process())
        multiprocessing.util.Finalize(None, write, exitpriority=-100)  # it ends without atexit

    atexit.register(write)
    multiprocessing.util.register_after_fork(places, begin_in_child)


start()
