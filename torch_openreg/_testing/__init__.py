"""What the pytest plugin (torch_openreg_pytest.py) does with each test: settings, counting, seeds, leaks, processes."""

from torch_openreg._testing.attendant import Attendant

__all__ = ["Attendant"]
