"""``python -m torch_openreg new NAME --minimal``: the new backend compiles, and trains a network as the CPU does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from conftest import run

ROOT = Path(__file__).parents[1]


def test_the_minimal_backend_builds_under_another_name_and_passes_its_own_tests(tmp_path: Path) -> None:
    project, installed = tmp_path / "project", tmp_path / "installed"
    command = [sys.executable, "-m", "torch_openreg", "new", "acme", "--minimal", "--output", project]
    written = run(command, tmp_path, {"PYTHONPATH": str(ROOT)})
    assert (written.returncode, written.stderr) == (0, "")
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]
    # This build takes 20 seconds of one core.
    built = run([sys.executable, "-m", "pip", "install", *quiet, "--target", installed, project], tmp_path, {})
    assert built.returncode == 0, built.stdout + built.stderr
    # torch_openreg, which would take PrivateUse1, is not loaded.
    variables = {"PYTHONPATH": os.fspath(installed), "TORCH_OPENREG_AUTOLOAD": "0"}
    tests = run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", project / "tests"], tmp_path, variables
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert "19 passed" in tests.stdout
