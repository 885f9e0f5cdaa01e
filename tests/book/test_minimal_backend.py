"""``python -m torch_openreg new NAME --minimal`` and ``--python``: the backend is installed and passes its tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import programs
import pytest
from programs import PYTEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("kind", "step", "tests"), [("minimal", "1", 52), ("minimal", "2", 58), ("python", "1", 5)])
def test_a_small_backend_is_installed_under_another_name_and_passes_its_own_tests(
    kind: str, step: str, tests: int, tmp_path: Path
) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    command = [sys.executable, "-m", "torch_openreg", "new", "acme", f"--{kind}", "--output", project]
    programs.run(*command, cwd=tmp_path, PYTHONPATH=str(ROOT), status=0, errors="")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]
    install = [sys.executable, "-m", "pip", "install", *quiet, "--target", installed, project]
    # Not optimized: the build takes most of the time.
    programs.run(*install, cwd=tmp_path, ACME_STEP=step, CFLAGS="-O0 -g0", status=0)
    # torch_openreg, which would take PrivateUse1, is not loaded.
    variables = {"PYTHONPATH": os.fspath(installed), "TORCH_OPENREG_AUTOLOAD": "0"}
    result = programs.run(*PYTEST, project / "tests", cwd=tmp_path, status=0, **variables)
    assert f"{tests} passed" in result.stdout
