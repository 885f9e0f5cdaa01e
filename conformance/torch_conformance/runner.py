"""Runs the checks in worker processes. A check that crashes or hangs ends its worker; the other checks still run.

This module does not import torch.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Record = dict[str, Any]

WORKER = (sys.executable, "-m", "torch_conformance.worker")
# The lines of a dying process that say why it dies.
_REASON = re.compile(
    r"what\(\):|terminate called|\w(Error|Exception)\b|[Cc]heck failed|[Aa]ssertion|LLVM ERROR|^[FE]\d{4} "
)
# A check may start processes that import torch, so it has the time of this many starts of a worker.
_STARTS = 8
_END = 5  # the seconds in which a worker that gives no more answers must end


class WorkerDied(Exception):
    """The worker died, or did not answer in time, or cannot import torch.

    ``args`` are the result of the check and its detail.
    """

    def __str__(self) -> str:
        return ": ".join(self.args)


class Worker:
    """A worker process with the variables ``environment``. Raises WorkerDied if it does not start or import torch."""

    def __init__(self, settings: Record, command: Sequence[str] = WORKER, **environment: str) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the worker may die)
        path = os.pathsep.join(filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH")]))
        self._process = subprocess.Popen(
            command,
            env={**os.environ, "PYTHONPATH": path, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,  # so that stop() reaches the processes that a check has started
        )
        self.checks_run = 0
        started = time.monotonic()
        try:
            greeting = self.ask(settings, 180)
            if error := greeting.get("error"):
                raise WorkerDied("failed", error)
        except WorkerDied as died:
            self.stop()
            raise WorkerDied(died.args[0], f"import torch: {died.args[1]}") from None
        self.started_in = time.monotonic() - started

    def run(self, check: Record, timeout: float) -> Any:
        """The answer to a check, in at most ``timeout`` seconds, or in the time of eight starts of this worker."""
        answer = self.ask(check, max(timeout, _STARTS * self.started_in))
        self.checks_run += 1
        return answer

    def ask(self, request: Record, timeout: float) -> Any:
        """The answer to one request. Raises WorkerDied if the worker dies, or needs more than ``timeout`` seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerDied("crashed", self._last_words()) from None
        end = time.monotonic() + timeout
        while not select.select([self._process.stdout], [], [], 1)[0]:
            if self._process.poll() is not None:  # a process that the worker forked may hold the pipe open
                raise WorkerDied("crashed", self._last_words())
            if time.monotonic() > end:
                self.stop()
                raise WorkerDied(
                    "hung",
                    f"no answer in {timeout:g} s (a device that compiles its kernels may need a larger --timeout)",
                )
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerDied("crashed", self._last_words())
        return json.loads(line)

    def stop(self) -> None:
        """Kills the process and all processes that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _last_words(self) -> str:
        try:
            status = self._process.wait(_END)
            how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        except subprocess.TimeoutExpired:
            self.stop()
            how = f"closed its output, and had not ended {_END} s later"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 64000))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        # An abort may print its reason before a hundred stack frames. The reason follows the result, and comes first.
        told = [line for line in lines[:-6] if _REASON.search(line)][-4:]
        return "\n".join([how, *told, *lines[-6:]])


def start_and_ask(
    settings: Record, request: Record, command: Sequence[str] = WORKER, **environment: str
) -> tuple[Worker, Any]:
    """A new worker, and its answer to one request. Raises WorkerDied if the worker gives none."""
    worker = Worker(settings, command, **environment)
    try:
        return worker, worker.ask(request, max(300, settings.get("timeout", 0)))
    except BaseException:
        worker.stop()
        raise


def ask_once(settings: Record, request: Record, command: Sequence[str] = WORKER, **environment: str) -> Any:
    """As `start_and_ask`, without the worker, which ends."""
    worker, answer = start_and_ask(settings, request, command, **environment)
    worker.stop()
    return answer


def run(
    checks: Sequence[Record],
    settings: Record,
    on_result: Callable[[Record], bool | None],
    *,
    jobs: int = 2,
    timeout: float = 60,
    batch: int = 400,
    command: Sequence[str] = WORKER,
    first: Worker | None = None,
) -> None:
    """Runs the checks in ``jobs`` workers, ``first`` among them. A worker is replaced after ``batch`` checks.

    A worker is also replaced if it says that a check has made the device unusable for it (``lost``). A check that ends
    its worker is run again, alone in a new one, if the worker had run others before: ``detail`` says if it passes there.

    A check is a record with a ``name``; the worker is asked with the whole record. Calls ``on_result`` with each check
    and its answer (``result``, ``detail``, ``seconds``, and ``traceback`` after a failure), one at a time. If
    ``on_result`` returns True, no further check is started. ``timeout`` is the limit for one check, in seconds;
    on a machine that needs longer to start eight workers, that time is the limit.
    KeyboardInterrupt kills the workers, because a worker that hangs would never end.
    """
    waiting: queue.SimpleQueue[Record] = queue.SimpleQueue()
    for check in checks:
        waiting.put(check)
    lock = threading.Lock()
    stopped, interrupted = threading.Event(), threading.Event()
    failures: list[BaseException] = []
    workers = {first} if first else set()

    def end(worker: Worker | None) -> None:
        if worker is not None:
            worker.stop()
            workers.discard(worker)

    def start() -> Worker:
        worker = Worker(settings, command)
        workers.add(worker)
        return worker

    def ends_alone(check: Record) -> bool:
        worker: Worker | None = None
        try:
            worker = start()
            worker.run(check, timeout)
            return False
        except WorkerDied:
            return True
        finally:
            end(worker)

    def work(worker: Worker | None) -> None:
        try:
            while not stopped.is_set():
                try:
                    check = waiting.get_nowait()
                except queue.Empty:
                    return
                started = time.monotonic()
                try:
                    if worker is None:
                        worker = start()
                    result = worker.run(check, timeout)
                except WorkerDied as died:
                    how, detail = died.args
                    seconds = round(time.monotonic() - started, 3)
                    before = worker.checks_run if worker else 0
                    end(worker)
                    worker = None
                    if how == "crashed" and before and not ends_alone(check):
                        detail += f"\n(not when run alone; the process ran {before} others before it)"
                    result = {"result": how, "detail": detail, "seconds": seconds}
                # A device that is lost for one process works in the next one.
                if worker is not None and (result.pop("lost", None) or worker.checks_run >= batch):
                    end(worker)
                    worker = None
                with lock:
                    if not interrupted.is_set() and on_result({**check, **result}):
                        stopped.set()
        except BaseException as error:
            failures.append(error)
            stopped.set()
        finally:
            end(worker)

    threads = [
        threading.Thread(target=work, args=(worker,), name=f"conformance-{n}", daemon=True)
        for n, worker in enumerate([first, *[None] * (jobs - 1)])
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        interrupted.set()
        stopped.set()
        for worker in [*workers]:
            worker.stop()
        raise
    if failures:
        raise failures[0]


class Results:
    """A file with one JSON object on each line: first the header, which says what was run, and then the records.

    Each result is appended when it arrives. A later run with the same header continues the file. A file with another
    header raises ValueError and is kept, because its results may have taken hours. A file that is not made of JSON
    lines raises ValueError, too. The files of several runs with ``--shard`` can be joined, if their headers are equal.
    """

    def __init__(self, path: Path, header: Record) -> None:
        self._path = path
        self.records: dict[str, Record] = {}
        if path.exists():
            # The last line of an interrupted run may be incomplete.
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            try:
                found, *records = map(json.loads, lines or [json.dumps(header)])
                headers = [record for record in records if "kit" in record]
                self.records = {record["name"]: record for record in records if "kit" not in record}
                found = next((other for other in headers if other != found), found)
            except (KeyError, TypeError, ValueError) as error:
                raise ValueError(f"{path} is not a file that --resume wrote: {error}") from None
            if found != header:
                raise ValueError(f"{path} has the results of another run, {found}, and this run is {header}")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for record in (header, *self.records.values()):
                file.write(json.dumps(record) + "\n")

    def add(self, record: Record) -> None:
        self.records[record["name"]] = record
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
