"""The tutorials of examples/tutorials run as a reader would run them. Each tutorial asserts its own claims."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import programs
import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "tutorials"
# Each tutorial, with each execution mode that it describes. Commands of the pages do the other runs: test_docs.py.
RUNS = [
    ("01_first_tensor", "inline"),
    ("03_training_with_autocast", "inline"),
    ("04_streams_and_events", "inline"),
    ("04_streams_and_events", "async"),
    ("04_streams_and_events", "chaos"),
    ("05_finding_a_device_bug", "chaos"),
    ("06_sharing_between_processes", "async"),
]


def test_every_tutorial_is_run() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "bring-up").glob("*.md"))
    shown = set(re.findall(r"python examples/tutorials/(\w+)\.py", pages))
    assert {file.stem for file in FOLDER.glob("*.py")} == {name for name, _ in RUNS} | shown


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode"), RUNS)
def test_a_tutorial_runs_in_each_mode_that_it_describes(name: str, mode: str, tmp_path: Path) -> None:
    programs.run(sys.executable, FOLDER / f"{name}.py", cwd=tmp_path, OPENREG_EXECUTION=mode, status=0)
