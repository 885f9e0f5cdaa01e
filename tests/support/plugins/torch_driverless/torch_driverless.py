"""A backend without a driver. As with CUDA, no device is available then, and the initialisation says why."""

import types


def _lazy_init():
    raise RuntimeError("Found no driver on your system.")


def _autoload():
    import torch

    torch.driverless = types.ModuleType("torch.driverless")
    torch.driverless.is_available = lambda: False
    torch.driverless._lazy_init = _lazy_init
