"""The parts of the pytest plugin (torch_openreg_pytest.py): settings, counting, seeds, leaks and processes of tests."""

from torch_openreg._testing.attendant import Attendant

__all__ = ["Attendant"]
