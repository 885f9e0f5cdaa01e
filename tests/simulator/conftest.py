"""Fixtures of the tests of the simulation."""

from __future__ import annotations

import pytest


@pytest.fixture
def as_a_user_has_it(monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> None:
    """Removes the settings of this test run from the environment, so that the inner pytest runs as for a user."""
    for name in ("TORCH_OPENREG_AS", "OPENREG_DEVICE_COUNT", "OPENREG_EXECUTION", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    pytester.syspathinsert()
    monkeypatch.setenv("PYTHONPATH", str(pytester.path))
