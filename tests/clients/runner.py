"""Runs a test file of a library in processes of their own, once as a machine without an accelerator, once on a face.

Each run is pytest with tests/clients/recorder.py, which writes down what becomes of each test. A process that dies is
followed by another one for the tests that are left, so that a crash costs one test.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent

CPU = {"TORCH_OPENREG_AUTOLOAD": "0", "TORCH_OPENREG_AS": ""}
FACES = {"cuda": {"TORCH_OPENREG_AS": "cuda"}, "openreg": {"TORCH_OPENREG_AS": ""}}


@dataclass
class Outcome:
    """What became of one test: passed, failed, skipped, crashed; and the first words of why."""

    outcome: str
    cause: str = ""


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
    known: Mapping[str, str] = field(default_factory=dict)

    def test_files(self, sources: Path) -> list[Path]:
        """The test files that a checkout in ``sources`` has."""
        root = sources / self.checkout
        return sorted({path for pattern in self.files for path in root.glob(pattern)})


def run_file(
    file: Path, suite: Suite, root: Path, environment: Mapping[str, str], records: Path, seconds: float
) -> dict[str, Outcome]:
    """What becomes of each test of ``file``; ``seconds`` for one process. Never raises for what a test does."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "recorder", "-p", "no:cacheprovider", "--no-header"]
    command += ["--rootdir", str(root), *suite.arguments, str(file)]
    path = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    variables = {**os.environ, **environment, **suite.environment, "OPENREG_CLIENTS_RECORDS": str(records)}
    records.unlink(missing_ok=True)
    outcomes: dict[str, Outcome] = {}
    while True:
        known = len(outcomes)
        status, words = _run(command, root, {**variables, "PYTHONPATH": path}, seconds)
        outcomes = read(records)
        if status >= 0 or len(outcomes) == known:
            break
        name = list(outcomes)[-1]  # the test in which the process died
        with records.open("a") as lines:
            lines.write(json.dumps({"id": name, "outcome": "crashed", "cause": words}) + "\n")
        outcomes = read(records)
    if status not in (0, 1, 5) and not outcomes:
        outcomes[str(file.relative_to(root))] = Outcome("failed", f"pytest ended with {status}: {words}")
    return outcomes


def read(records: Path) -> dict[str, Outcome]:
    """The last record of each test."""
    outcomes: dict[str, Outcome] = {}
    if records.exists():
        for line in records.read_text().splitlines():
            what = json.loads(line)
            outcomes[what["id"]] = Outcome(what["outcome"], what.get("cause", ""))
    return outcomes


def _run(command: Sequence[str], root: Path, variables: Mapping[str, str], seconds: float) -> tuple[int, str]:
    """The exit status, negative for a death, and the process's last words."""
    with subprocess.Popen(
        command, cwd=root, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    ) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return -signal.SIGKILL, f"no end after {seconds:g} s"
    lines = [line for line in output.decode(errors="replace").splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if line.startswith("openreg:")), lines[-1] if lines else "")
    if process.returncode < 0:
        said = f"{signal.Signals(-process.returncode).name}: {said}"
    return process.returncode, said[:500]
