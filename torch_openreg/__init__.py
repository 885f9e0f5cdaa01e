"""torch_openreg: a complete PyTorch accelerator that needs no hardware, as device ``"openreg"``.

``import torch`` loads this package (the ``torch.backends`` entry point below), so programs need not name it; importing it
by hand, before or after torch, does the same. Neither ever raises: what went wrong is kept and raised, with its cause, at
the first use of the device. ``TORCH_OPENREG_AUTOLOAD=strict`` raises at once, and ``=0`` leaves this backend out until
it is imported by hand.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torch_openreg import _loader

__all__ = ["cmake_prefix_path", "include_paths", "library_paths"]


def _autoload() -> ModuleType | None:
    """What ``import torch`` calls. Returns ``torch.openreg``, or None if it is switched off.

    With this package imported first, ``import torch`` comes here while this very module is half imported: the loader is
    already there, and does the work once.
    """
    if _loader.switched_off():
        # Forgets the import that led here, so that a later one by hand starts anew.
        del sys.modules[__name__]
        return None
    return _loader.load()


def __getattr__(name: str) -> Any:
    if name in __all__ or name == "__version__":
        from torch_openreg import _paths

        return getattr(_paths, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not (_loader.switched_off() and _loader.torch_is_importing()):
    _loader.load()
