"""Runs the checked program: each run is a process group of its own, in its own copy of the working folder."""

from __future__ import annotations

import contextlib
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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch_openreg.simulator.check._plan import STACKS
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

    @property
    def record(self) -> dict[str, Any]:
        """The record of the process that used the device most."""
        return max(self.records, key=lambda record: sum(record["counts"].values()), default={})

    def fired(self) -> bool:
        return any(fault["fired"] for record in self.records for fault in record["faults"])


class FolderTooLarge(Exception):
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

    def run(
        self, settings: Mapping[str, str], what: str = "", limit: float | None = None, fresh: bool = False
    ) -> Result:
        """One run, with these environment variables. ``fresh``: in a new interpreter. ``what``: see _recorder.py."""
        place = Path(tempfile.mkdtemp(dir=self.scratch))
        with self._lock:
            self._running.add(place)
        try:
            return self._run(place, settings, what, limit, fresh)
        finally:
            end_processes_of(place)
            with self._lock:
                self._running.discard(place)

    def _run(self, place: Path, settings: Mapping[str, str], what: str, limit: float | None, fresh: bool) -> Result:
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
        if paths := os.environ.get("PYTHONPATH"):
            environment["PYTHONPATH"] = os.pathsep.join(self._moved(part, folder) for part in paths.split(os.pathsep))
        words = [self._moved(word, folder) for word in self.words]
        begin = time.monotonic()
        with open(place / "stdout", "w+b") as output, open(place / "stderr", "w+b") as errors:
            start = self._start_fresh if fresh else self._start
            process = start(words, os.environ | environment, folder, output.fileno(), errors.fileno())
            try:
                status = _wait(process, limit)
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
                texts.append(text.decode(errors="replace").replace(str(folder), str(self.folder)))
        written = {} if self.in_place else self._written(folder)
        read = list(_read(records, folder, self.folder))
        return Result(settings, status, texts[0], texts[1], written, read, seconds, folder, texts[2])

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

    def _start(self, words: list[str], environment: dict[str, str], folder: Path, output: int, errors: int) -> Program:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            self._server = self._server or Server()
        return self._server.start(words, environment, str(folder), output, errors)

    def stop(self) -> None:
        """Ends everything that still runs."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for place in running:
            end_processes_of(place)
        if self._server is not None:
            self._server.end()


class Clock:
    """Measures how long a run takes without the time in which its threads wait for a processor.

    So the limit of a run means the same on a busy machine. A run without a limit is over if its threads do nothing.
    """

    STEP = 0.2
    IDLE = 120.0  # seconds, in which the threads together work or wait for a processor for at most WORK seconds
    WORK = 3.0

    def __init__(self, process: int, limit: float | None) -> None:
        self._process = process
        self._limit = limit
        self._begin = self._active = time.monotonic()
        self._work = 0.0

    def is_over(self) -> bool:
        now = time.monotonic()
        if self._limit is None:
            work = sum(map(sum, _times(self._process)))
            if abs(work - self._work) > self.WORK:  # the sum is smaller after the end of a thread
                self._work, self._active = work, now
            return now - self._active > self.IDLE
        if now - self._begin < self._limit:
            return False
        waited = max((delay for _, delay in _times(self._process)), default=0.0)
        return now - self._begin - waited > self._limit


def _wait(process: Program | subprocess.Popen[bytes], limit: float | None) -> int | None:
    """The exit status, or None if the run took longer than its limit."""
    clock = Clock(process.pid, limit)
    while not clock.is_over():
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(Clock.STEP)
    return None


def _times(process: int) -> Iterator[tuple[float, float]]:
    """For each thread of a process and its children: the seconds in which it ran, and could run but had no processor."""
    with contextlib.suppress(OSError, IndexError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            ran, waited = (thread / "schedstat").read_text().split()[:2]
            yield int(ran) / 1e9, int(waited) / 1e9
            for child in (thread / "children").read_text().split():
                yield from _times(int(child))


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
