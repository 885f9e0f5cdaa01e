"""As CUDA does it: no device is available, and asking for one says why."""

import types


def _lazy_init():
    raise RuntimeError("Found no driver on your system.")


def _autoload():
    import torch

    torch.driverless = types.ModuleType("torch.driverless")
    torch.driverless.is_available = lambda: False
    torch.driverless._lazy_init = _lazy_init
