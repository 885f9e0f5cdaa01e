"""The parts of the pytest plugin (torch_openreg/simulator/_pytest.py): settings, counting, seeds, leaks and processes of tests."""

from torch_openreg.simulator.testing.hooks import PerTestHooks

__all__ = ["PerTestHooks"]
