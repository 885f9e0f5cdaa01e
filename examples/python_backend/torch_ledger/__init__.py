"""A PyTorch device in Python alone: ``torch.ones(2, device="ledger")``. ``import torch`` loads it."""

from __future__ import annotations

from types import ModuleType


def _autoload() -> ModuleType | None:
    """Called by PyTorch at the end of ``import torch``. Returns None if another backend has PrivateUse1."""
    import torch

    if torch._C._get_privateuse1_backend_name() not in ("privateuseone", "ledger"):
        return None
    from torch_ledger import device

    return device


# Loads the backend if autoload is switched off and a program imports torch_ledger.
_autoload()
