"""Runs a test file of a library in separate processes: once without an accelerator, once with the device (IDENTITIES).

Each run is pytest with recorder.py, which writes down what becomes of each test. A process that dies is
followed by another one for the tests that are left, so that a crash costs one test. What is recorded already is not run
again, so that a run goes on where it was interrupted.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
POLL = 1.0  # seconds between two looks at the records
STOP = threading.Event()  # set: the processes are ended, and what they have recorded stays

CPU = {"TORCH_OPENREG_AUTOLOAD": "0", "TORCH_OPENREG_AS": ""}
IDENTITIES = {"cuda": {"TORCH_OPENREG_AS": "cuda"}, "openreg": {"TORCH_OPENREG_AS": ""}}


@dataclass
class Outcome:
    """How one test ended (passed, failed, skipped or crashed), and the first words of the reason."""

    outcome: str
    cause: str = ""


BEGUN = Outcome("crashed")  # what the recorder writes before a test runs; it stays if the run is stopped in the test


@dataclass
class Suite:
    """A library's tests: see libraries.toml."""

    name: str
    package: str
    requirement: str
    checkout: str
    files: Sequence[str]
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    through: str = ""
    per_file: bool = False
    known: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def root(self, sources: Path) -> Path:
        """The folder of the checkout in ``sources``, or of the installed package if there is no checkout to make."""
        if self.checkout:
            return (sources / self.checkout).resolve()
        spec = importlib.util.find_spec(self.package)
        folders = spec and spec.submodule_search_locations
        return Path(folders[0]).resolve() if folders else sources.resolve() / self.package

    def test_files(self, sources: Path) -> list[Path]:
        """The test files that ``root(sources)`` has."""
        root = self.root(sources)
        return sorted({path for pattern in self.files for path in root.glob(pattern)})


def run_file(
    file: Path,
    suite: Suite,
    root: Path,
    environment: Mapping[str, str],
    records: Path,
    seconds: float,
    resume: bool = False,
    heard: Callable[[int, int], None] = lambda done, of: None,
) -> dict[str, Outcome]:
    """Runs the tests of ``file``, and returns how each of them ended. A test never makes this function raise.

    ``seconds`` is how long a process may be silent: the time of the longest test. ``resume`` keeps what ``records``
    has. ``heard`` is called with the number of tests that have a record, and the number of all.
    """
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "--no-header"]
    command += ["--rootdir", str(HERE if suite.through else root), *suite.arguments]
    command += ["-c", os.devnull, "--confcutdir", str(HERE)] if suite.through else []
    command += [str(HERE / suite.through if suite.through else file)]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, **environment, **suite.environment, "PYTHONPATH": path}
    # A suite may call its library's command, which lies beside Python.
    variables["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), variables.get("PATH", os.defpath)])
    variables |= {"OPENREG_CLIENTS_RECORDS": str(records), "OPENREG_CLIENTS_FILE": str(file)}
    what = {"finished": [*suite.arguments, variables.get("OPENREG_CLIENTS_SHARD", "")]}
    if not resume:
        records.unlink(missing_ok=True)
    elif records.exists():
        again = {name for name, outcome in read(records).items() if outcome == BEGUN or "::" not in name}
        lines = [json.loads(line) for line in records.read_text().splitlines()]
        records.write_text("".join(json.dumps(line) + "\n" for line in lines if line.get("id") not in again))
        if what in lines:
            return read(records)
    outcomes = read(records)
    # Python imports from the folder in which pytest starts, and a package's folder has modules like its own logging.py.
    folder = root if suite.checkout else HERE
    while True:
        known = len(outcomes)
        status, words = _run(command, folder, variables, seconds, records, heard)
        outcomes = read(records)
        if status >= 0 or len(outcomes) == known:
            break
        name = list(outcomes)[-1]  # the test in which the process died
        _append(records, {"id": name, "outcome": "crashed", "cause": words})
        outcomes = read(records)
    if status not in (0, 5) and not outcomes:
        outcomes[str(file.relative_to(root))] = Outcome("failed", f"pytest ended with {status}: {words}")
    elif status >= 0:
        _append(records, what)
    return outcomes


def read(records: Path) -> dict[str, Outcome]:
    """The last record of each test."""
    outcomes: dict[str, Outcome] = {}
    if records.exists():
        for line in records.read_text().splitlines():
            what = json.loads(line)
            if "id" in what:
                outcomes[what["id"]] = Outcome(what["outcome"], what.get("cause", ""))
    return outcomes


def _append(records: Path, what: Mapping[str, object]) -> None:
    with records.open("a") as lines:
        lines.write(json.dumps(what) + "\n")


def _progress(records: Path) -> tuple[int, int]:
    """How many tests have a record, and how many there are: (0, 0) before they are collected."""
    text = records.read_text() if records.exists() else ""
    lines = [json.loads(line) for line in text.splitlines() if line.endswith("}")]
    counts = [line["collected"] for line in lines if "collected" in line]
    return len({line["id"] for line in lines if "id" in line}), counts[-1] if counts else 0


def _run(
    command: Sequence[str],
    root: Path,
    variables: Mapping[str, str],
    seconds: float,
    records: Path,
    heard: Callable[[int, int], None],
) -> tuple[int, str]:
    """The exit status, negative for a death, and the process's last words."""
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(
            command, cwd=root, env=variables, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        size, since = 0, time.monotonic()
        try:
            while True:
                try:
                    process.wait(POLL)
                    break
                except subprocess.TimeoutExpired:
                    now = records.stat().st_size if records.exists() else 0
                    if now != size:
                        size, since = now, time.monotonic()
                        heard(*_progress(records))
                    elif time.monotonic() - since > seconds:
                        return -signal.SIGKILL, f"no end after {seconds:g} s"
                    if STOP.is_set():
                        raise InterruptedError from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("openreg:")), lines[-1] if lines else "")
    if process.returncode < 0:
        said = f"{signal.Signals(-process.returncode).name}: {said}"
    return process.returncode, said[:500]
