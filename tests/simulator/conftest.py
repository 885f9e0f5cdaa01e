"""Fixtures of the tests of the simulation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from unittest import mock

import programs
import pytest


@pytest.fixture
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Removes the settings of this test run from the environment, so that the inner pytest runs as for a user."""
    for name in ("TORCH_OPENREG_AS", "OPENREG_DEVICE_COUNT", "OPENREG_EXECUTION", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.syspathinsert()
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))


Dry = Callable[..., tuple[int, str, str]]


@pytest.fixture
def dry(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Dry:
    """Runs the command dry in this process, and its program as programs.run() does: status, output and errors."""
    from torch_openreg.simulator._cli import dry as command

    def run_program(words: list[str], stdout: int | None, stderr: int | None) -> programs.Done:
        done = programs.run(*words)
        if stdout != subprocess.DEVNULL:
            print(done.stdout, end="")
            print(done.stderr, end="", file=sys.stderr)
        return done

    monkeypatch.setattr(command, "subprocess", SimpleNamespace(run=run_program, DEVNULL=subprocess.DEVNULL))
    for name in ("argv", "orig_argv"):  # the command's own, without options of Python
        monkeypatch.setattr(sys, name, [sys.executable, "-m", "torch_openreg"][-1 if name == "argv" else 0 :])

    def run(*arguments: object) -> tuple[int, str, str]:
        with mock.patch.dict(os.environ):
            status = command.main([*map(str, arguments)])
        return status, *capsys.readouterr()

    return run
