"""Runs the checked program: each run is a process group of its own, in its own copy of the working folder."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from torch_openreg._environment import submodules_of_variables
from torch_openreg.simulator.check._plan import LAUNCHER, STACKS
from torch_openreg.simulator.check._server import Program, Server

# The variable that makes a process of the program write a record (openreg/_recorder.py): a folder, and what to record.
VARIABLE = "OPENREG_CHECK"
# Folders of tools are large, and no program writes them: a copy has links to them.
LINKED = (".git", ".hg", ".venv*", "venv", "node_modules")
IGNORED = (*LINKED, "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache")
LARGEST_FOLDER = 1 << 28


@dataclass
class Result:
    """One run. ``status`` is the exit status, minus a signal, or None if the run took longer than its limit."""

    settings: Mapping[str, str]
    status: int | None
    stdout: str
    stderr: str
    files: dict[str, str]  # what the run wrote: path -> hash
    records: list[dict[str, Any]]  # of each process that ended normally
    seconds: float
    folder: Path
    stacks: str = ""  # of the threads of a run that took too long
    # The file and the line in which a process was that ended without a record, by its rank; "" if it has none.
    last_lines: dict[str, tuple[str, int]] = field(default_factory=dict)
    pid: int = 0

    @property
    def record(self) -> dict[str, Any]:
        """The record of the process that used the device most."""
        return max(self.records, key=lambda record: sum(record["counts"].values()), default={})

    @property
    def memory(self) -> int:
        """The bytes of all processes, each when it had most: at least what the run needs at one time."""
        return sum(record.get("resident", 0) for record in self.records)

    def fired(self) -> bool:
        return any(fault["fired"] for record in self.records for fault in record["faults"])


class Limits(NamedTuple):
    """When a run is over. In seconds; ``until`` is a time of time.monotonic()."""

    seconds: float | None = None
    idle: float = 120.0
    until: float | None = None


NO_LIMITS = Limits()
# Starts the words of a command, with its variables, its folder, and the files for its output and its errors.
Start = Callable[[list[str], dict[str, str], Path, int, int], Program | subprocess.Popen[bytes]]


class FolderTooLarge(Exception):
    pass


class OutOfTime(Exception):
    pass


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Runner:
    """Runs ``python WORDS``. ``folder`` is the working folder, and ``scratch`` is for copies, records and output."""

    words: Sequence[str]
    folder: Path
    in_place: bool
    scratch: Path
    _server: Server | None = None
    _ranks: Server | None = None
    _loaded: Server | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: set[Path] = field(default_factory=set)
    _stopped: bool = False

    def check_folder(self) -> None:
        """Raises FolderTooLarge if a copy of the working folder for each run would be too much."""
        size = 0
        ignore = shutil.ignore_patterns(*IGNORED)
        for base, folders, files in os.walk(self.folder):
            skipped = ignore(base, [*folders, *files])
            folders[:] = [name for name in folders if name not in skipped]
            for name in files:
                with contextlib.suppress(OSError):
                    size += os.lstat(os.path.join(base, name)).st_size
            if size > LARGEST_FOLDER:
                raise FolderTooLarge(
                    f"each run gets a copy of the working folder, and {self.folder} has more than "
                    f"{LARGEST_FOLDER >> 20} MiB. Start the command in the program's own folder, or add --in-place, "
                    "with which all runs work in this folder"
                )

    def serve_ranks(self, threads: str | None) -> None:
        """From now on a server starts the ranks. ``threads``: the OMP_NUM_THREADS that torchrun gives them.

        Their interpreters would need most of the time of a run. The ranks of a run are found by the copy of the folder,
        so there is no server with ``in_place``.
        """
        if self.in_place or LAUNCHER in os.environ:
            return
        environment = os.environ | ({"OMP_NUM_THREADS": threads} if threads else {})
        with contextlib.suppress(OSError):  # the name of a socket has at most 107 bytes
            self._ranks = Server(environment=environment, path=self.scratch / "ranks")

    def load(self, first: Result) -> bool:
        """Begins to import what the first run has imported. False if there is nothing to import.

        These imports are most of the time of a short program. They come before the device reads its variables, so a
        run may begin after them if it differs from the first run only in its faults.
        """
        modules = next((record.get("modules") for record in first.records if record["pid"] == first.pid), None)
        if not modules or submodules_of_variables():  # the second would be there before the fork
            return False
        self._loaded = Server(imports=["torch", *modules], is_quiet=True)
        return True

    def run(
        self,
        settings: Mapping[str, str],
        what: str = "",
        limits: Limits = NO_LIMITS,
        fresh: bool = False,
        loaded: bool = False,
    ) -> Result:
        """One run, with these environment variables. ``what``: see _recorder.py.

        ``fresh``: in a new interpreter. ``loaded``: after the imports of load().
        Raises EOFError if these imports have failed, and OutOfTime if the run has not ended by ``limits.until``.
        """
        place = Path(tempfile.mkdtemp(dir=self.scratch))
        with self._lock:
            self._running.add(place)
        try:
            start = self._start_fresh if fresh else functools.partial(self._start, loaded=loaded)
            return self._run(place, settings, what, limits, start)
        finally:
            end_processes_of(place)
            with self._lock:
                self._running.discard(place)

    def _run(self, place: Path, settings: Mapping[str, str], what: str, limits: Limits, start: Start) -> Result:
        folder, records = self.folder, place / "records"
        records.mkdir()
        if not self.in_place:
            folder = place / "folder"
            shutil.copytree(
                self.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(*IGNORED), copy_function=_copy
            )
            for path in (path for pattern in LINKED for path in self.folder.glob(pattern)):
                (folder / path.name).symlink_to(path)
        port = str(free_port())
        environment = {
            "MASTER_PORT": port,
            "PET_MASTER_PORT": port,  # what torchrun reads
            **settings,
            VARIABLE: f"{records}:{what}",
        }
        if self._ranks and start != self._start_fresh:
            environment[LAUNCHER] = str(self._ranks.launcher)
        if paths := os.environ.get("PYTHONPATH"):
            environment["PYTHONPATH"] = os.pathsep.join(self._moved(part, folder) for part in paths.split(os.pathsep))
        words = [self._moved(word, folder) for word in self.words]
        begin = time.monotonic()
        with open(place / "stdout", "w+b") as output, open(place / "stderr", "w+b") as errors:
            process = start(words, os.environ | environment, folder, output.fileno(), errors.fileno())
            try:
                status = self._wait(process, Clock(process.pid, place, limits))
                seconds = time.monotonic() - begin
                end = os.fstat(errors.fileno()).st_size
                if status is None:
                    _write_stacks(process.pid, place, errors.fileno())
            finally:
                end_group(process.pid)
                process.wait()
            end_processes_of(place)
            texts: list[str] = []
            for file, first, last in ((output, 0, -1), (errors, 0, end), (errors, end, -1)):
                file.seek(first)
                text = file.read(last - first if last >= 0 else -1)
                if file is output:  # then what the processes printed that others have started
                    text = b"".join([text, *(path.read_bytes() for path in sorted(records.glob("*.stdout")))])
                texts.append(text.decode(errors="replace").replace(str(folder), str(self.folder)))
        written = {} if self.in_place else self._written(folder)
        read = list(_read(records, folder, self.folder))
        lines = _last_lines(records, folder, self.folder)
        return Result(
            settings, status, texts[0], texts[1], written, read, seconds, folder, texts[2], lines, process.pid
        )

    def _moved(self, text: str, folder: Path) -> str:
        """A path within the working folder becomes the path within the copy."""
        own = str(self.folder)
        return str(folder) + text[len(own) :] if text == own or text.startswith(own + os.sep) else text

    def _written(self, folder: Path) -> dict[str, str]:
        found = {}
        ignore = shutil.ignore_patterns(*IGNORED)
        for base, folders, files in os.walk(folder):
            folders[:] = [name for name in folders if name not in ignore(base, folders)]
            for name in files:
                path = os.path.join(base, name)
                relative = os.path.relpath(path, folder)
                if not os.path.islink(path) and _stamp(path) != _stamp(os.path.join(self.folder, relative)):
                    with open(path, "rb") as file:
                        found[relative] = hashlib.sha256(file.read()).hexdigest()
        return found

    def _start_fresh(
        self, words: list[str], environment: dict[str, str], folder: Path, output: int, errors: int
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *words],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )

    def _start(self, *how: Any, loaded: bool = False) -> Program:
        words, environment, folder, output, errors = how
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            self._server = self._server or Server()
        server = self._loaded if loaded and self._loaded else self._server
        return server.start(words, environment, str(folder), output, errors)

    def _wait(self, process: Program | subprocess.Popen[bytes], clock: Clock) -> int | None:
        """The exit status, or None if the run is over before the program ends."""
        while not clock.is_over():
            if self._stopped:  # the run was begun, or has started a process, while stop() looked for processes
                raise KeyboardInterrupt
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(Clock.STEP)
        return None

    def stop(self) -> None:
        """Ends everything that still runs. Then each run() ends what it has started, and raises KeyboardInterrupt."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for place in running:
            end_processes_of(place)
        for server in filter(None, (self._server, self._ranks, self._loaded)):
            server.end()


class Clock:
    """Says when a run is over: it took too long, or its threads do nothing.

    The time in which its threads wait for a processor does not count, so that the limits mean the same on a busy machine.
    """

    STEP = 0.2
    WORK = 0.025  # of the time: threads that work or wait for a processor for less than this do nothing

    def __init__(self, leader: int, place: Path, limits: Limits) -> None:
        self._leader, self._place, self._limits = leader, place, limits
        self._begin = self._active = self._looked = time.monotonic()
        self._work = 0.0

    def is_over(self) -> bool:
        """Raises OutOfTime after ``limits.until``."""
        now, limits = time.monotonic(), self._limits
        if limits.until is not None and now > limits.until:
            raise OutOfTime
        if now - self._looked < 1:
            return False
        self._looked = now
        times = [*_times(self._leader, self._place)]
        work = sum(map(sum, times))
        if abs(work - self._work) > self.WORK * limits.idle:  # the sum is smaller after the end of a thread
            self._work, self._active = work, now
        waited = max((delay for _, delay in times), default=0.0)
        is_late = limits.seconds is not None and now - self._begin - waited > limits.seconds
        return is_late or now - self._active > limits.idle


def _times(leader: int, place: Path) -> Iterator[tuple[float, float]]:
    """For each thread of a run: the seconds in which it ran, and in which it could run but had no processor."""
    processes = {*_processes_of(place)}
    new = [leader]
    while new:  # with --in-place only the children show which processes belong to a run
        processes.add(process := new.pop())
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{process}/task").glob("*/children"):
                new += map(int, children.read_text().split())
    for process in processes:
        with contextlib.suppress(OSError, IndexError):
            for thread in Path(f"/proc/{process}/task").iterdir():
                ran, waited = (thread / "schedstat").read_text().split()[:2]
                yield int(ran) / 1e9, int(waited) / 1e9


def _write_stacks(leader: int, place: Path, errors: int) -> None:
    """Makes each process of a run write the stacks of its threads to stderr (_recorder.py), and waits for the text."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, STACKS)
    for process in _processes_of(place):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(process) != leader:
                os.kill(process, STACKS)
    begin = size = os.fstat(errors).st_size
    for _ in range(10):  # seconds; after them the finding has no line
        time.sleep(1)
        before, size = size, os.fstat(errors).st_size
        if begin < before == size:
            return


def _copy(source: str, target: str) -> None:
    with contextlib.suppress(OSError):  # a socket, or a file that nobody may read
        shutil.copy2(source, target)


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns


def _read(records: Path, folder: Path, original: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(records.glob("*.json")):
        with contextlib.suppress(ValueError):  # the process ended while it wrote
            yield json.loads(path.read_text().replace(str(folder), str(original)))


def _last_lines(records: Path, folder: Path, original: Path) -> dict[str, tuple[str, int]]:
    found = {}
    for path in records.glob("*.line"):
        process, _, rank = path.stem.partition("-")
        text = path.read_bytes().partition(b"\n")[0].decode(errors="replace").replace(str(folder), str(original))
        file, _, line = text.rpartition(":")
        if file and not (records / f"{process}.json").exists():
            found[rank] = file, int(line)
    return found


def end_group(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def end_processes_of(place: Path) -> None:
    """Ends the processes that a run has started and that left its group, as the workers of torchrun do."""
    for process in _processes_of(place):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)


def _processes_of(place: Path) -> Iterator[int]:
    """The processes of a run: in its copy of the folder, or with its variable, whose folder no other run has.

    A fork of the server (_zygote.py) shows the server's variables. Another folder is the choice of the program.
    """
    mark = f"{VARIABLE}={place}/"
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                in_folder = os.readlink(f"/proc/{entry}/cwd").startswith(f"{place}/")
                if in_folder or mark.encode() in Path(f"/proc/{entry}/environ").read_bytes():
                    yield int(entry)
