"""The parts of the pytest plugin (torch_openreg_pytest.py): settings, counting, seeds, leaks and processes of tests."""

from torch_openreg._testing.hooks import PerTestHooks

__all__ = ["PerTestHooks"]
