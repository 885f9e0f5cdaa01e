"""Drives worker processes through a list of cases; a crash or a hang costs one case, and its worker.

A worker is given one case at a time, so that the case it died in is known. That case is then run once more, alone in a
fresh worker: the detail says whether it also dies there. Knows nothing of PyTorch.
"""

from __future__ import annotations

import json
import os
import queue
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

TOOLS = Path(__file__).resolve().parents[1]
SUPPORT = TOOLS.parent / "support"
WORKER = (sys.executable, "-m", "sweep.worker")

# A case and its result: one line of the results file.
Record = dict[str, Any]


def key(case: Record) -> str:
    """The name of a case: suite/name/dtype/variant."""
    return "/".join(case[part] for part in ("suite", "name", "dtype", "variant"))


class WorkerError(Exception):
    """The worker died or did not answer in time; the message says how, with its last words."""


class Worker:
    """One worker process. `ask` sends a request and waits for the answer."""

    def __init__(self, command: Sequence[str], settings: Record, start_timeout: float = 120) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the worker may die)
        stderr = None if settings.get("verbose") else self._log
        environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
        self._process = subprocess.Popen(
            command, cwd=TOOLS, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
        )
        self.cases_run = 0
        self.greeting = self.ask(settings, start_timeout)

    def ask(self, request: Record, timeout: float) -> Any:
        """The worker's answer. Raises WorkerError if it dies or takes longer than `timeout` seconds."""
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(self._last_words()) from None
        if not select.select([self._process.stdout], [], [], timeout)[0]:
            self.stop()
            raise WorkerError(f"hang: no answer in {timeout:g} s")
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise WorkerError(self._last_words())
        return json.loads(line)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _last_words(self) -> str:
        status = self._process.wait()
        how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 4000))
        lines = [line for line in self._log.read().decode(errors="replace").splitlines() if line.strip()]
        # The simulator explains a fault in one sentence; otherwise a traceback ends with its reason.
        sentence = next((line for line in reversed(lines) if line.startswith("openreg:")), lines[-1] if lines else "")
        return f"{how}: {sentence}" if sentence else how


def list_cases(settings: Record, suites: list[str], dtypes: list[str], variants: list[str]) -> tuple[str, list[Record]]:
    """PyTorch's version and all cases, asked of a worker."""
    worker = Worker(WORKER, settings)
    try:
        cases = worker.ask({"list": {"suites": suites, "dtypes": dtypes, "variants": variants}}, 120)
        return worker.greeting["torch"], cases
    finally:
        worker.stop()


def run_cases(
    cases: list[Record],
    settings: Record,
    on_result: Callable[[Record], None],
    *,
    jobs: int = 2,
    timeout: float = 60,
    batch: int = 400,
    command: Sequence[str] = WORKER,
) -> None:
    """Runs `cases` in `jobs` workers, each replaced after `batch` cases, and calls `on_result` with each case and its
    result, one at a time. `timeout` is in seconds a case. Raises WorkerError if a worker cannot start."""
    waiting: queue.SimpleQueue[Record] = queue.SimpleQueue()
    for case in cases:
        waiting.put(case)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def ask(worker: Worker, case: Record) -> Record:
        return worker.ask({"case": case}, timeout)

    def run_one(worker: Worker, case: Record) -> tuple[Record, bool]:
        """The result, and whether the worker lives."""
        try:
            return ask(worker, case), True
        except WorkerError as error:
            how = str(error)
        status = "hang" if how.startswith("hang") else "crash"
        alone = Worker(command, settings)
        try:
            ask(alone, case)
            how += f" (not when run alone; {worker.cases_run} cases ran before it)"
        except WorkerError:
            pass
        finally:
            alone.stop()
        return {"status": status, "detail": how}, False

    def work() -> None:
        worker: Worker | None = None
        try:
            while not failures:
                try:
                    case = waiting.get_nowait()
                except queue.Empty:
                    return
                if worker is None:
                    worker = Worker(command, settings)
                started = time.monotonic()
                result, alive = run_one(worker, case)
                worker.cases_run += 1
                if not alive or worker.cases_run >= batch:
                    worker.stop()
                    worker = None
                with lock:
                    on_result({**case, **result, "seconds": round(time.monotonic() - started, 3)})
        except BaseException as error:
            failures.append(error)
        finally:
            if worker is not None:
                worker.stop()

    threads = [threading.Thread(target=work, name=f"sweep-{n}") for n in range(jobs)]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt as interrupt:
        failures.append(interrupt)
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


class Results:
    """A file of records, a JSON object a line, appended to as results come; a later sweep goes on from it."""

    def __init__(self, path: Path, header: Record, *, fresh: bool) -> None:
        self._path = path
        self.records: dict[str, Record] = {}
        if not fresh and path.exists():
            # The last line of an interrupted run may be cut short.
            lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
            if lines and json.loads(lines[0]) == header:
                self.records = {key(record): record for record in map(json.loads, lines[1:])}
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as file:
            for record in (header, *self.records.values()):
                file.write(json.dumps(record) + "\n")

    def add(self, record: Record) -> None:
        self.records[key(record)] = record
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")
