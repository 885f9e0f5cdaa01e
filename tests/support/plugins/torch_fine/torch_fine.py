"""A healthy backend."""

import types


def _autoload():
    import torch

    torch.fine = types.ModuleType("torch.fine")
    torch.fine.is_available = lambda: True
    return torch.fine
