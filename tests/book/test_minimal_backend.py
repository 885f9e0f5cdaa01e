"""``python -m torch_openreg new NAME --minimal`` and ``--python``: the backend is installed and passes its tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from environments import run

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("kind", "step", "tests"), [("minimal", "1", 52), ("minimal", "2", 58), ("python", "1", 5)])
def test_a_small_backend_is_installed_under_another_name_and_passes_its_own_tests(
    kind: str, step: str, tests: int, tmp_path: Path
) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    command = [sys.executable, "-m", "torch_openreg", "new", "acme", f"--{kind}", "--output", project]
    written = run(command, tmp_path, {"PYTHONPATH": str(ROOT)})
    assert (written.returncode, written.stderr) == (0, "")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]
    # The build of the minimal backend takes 20 seconds of one core.
    install = [sys.executable, "-m", "pip", "install", *quiet, "--target", installed, project]
    built = run(install, tmp_path, {"ACME_STEP": step})
    assert built.returncode == 0, built.stdout + built.stderr
    # torch_openreg, which would take PrivateUse1, is not loaded.
    variables = {"PYTHONPATH": os.fspath(installed), "TORCH_OPENREG_AUTOLOAD": "0"}
    result = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", project / "tests"], tmp_path, variables
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{tests} passed" in result.stdout
