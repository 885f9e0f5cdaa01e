"""Runs pytest as a program of the tests (programs.py)."""

from __future__ import annotations

import sys

import programs
import pytest


def run_pytest(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    """As pytester.runpytest_subprocess()."""
    result = programs.run(sys.executable, "-m", "pytest", *options, cwd=pytester.path)
    return pytest.RunResult(result.returncode, result.stdout.splitlines(), result.stderr.splitlines(), duration=0)
