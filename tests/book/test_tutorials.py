"""The tutorials of examples/tutorials run as a reader would run them. Each tutorial asserts its own claims."""

from __future__ import annotations

import sys
from pathlib import Path

import programs
import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "tutorials"
# Each tutorial, with each execution mode that it describes.
RUNS = [
    ("01_first_tensor", "inline"),
    ("02_first_operator", "inline"),
    ("03_training_with_autocast", "inline"),
    ("04_streams_and_events", "inline"),
    ("04_streams_and_events", "async"),
    ("04_streams_and_events", "chaos"),
    ("05_finding_a_device_bug", "chaos"),
    ("06_sharing_between_processes", "inline"),
    ("06_sharing_between_processes", "async"),
]


def test_every_tutorial_is_run() -> None:
    assert {file.stem for file in FOLDER.glob("*.py")} == {name for name, _ in RUNS}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "mode"),
    [RUNS[0], RUNS[4], *(pytest.param(*run, marks=pytest.mark.slow) for run in RUNS if run not in (RUNS[0], RUNS[4]))],
)
def test_a_tutorial_runs_in_each_mode_that_it_describes(name: str, mode: str, tmp_path: Path) -> None:
    environment = {"OPENREG_EXECUTION": mode, "TORCH_EXTENSIONS_DIR": str(tmp_path)}
    programs.run(sys.executable, FOLDER / f"{name}.py", cwd=tmp_path, **environment, status=0)
