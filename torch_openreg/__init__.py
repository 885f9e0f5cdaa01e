"""torch_openreg: a complete PyTorch accelerator that needs no hardware, as device ``"openreg"``.

``import torch`` loads this package (torch_openreg_autoload.py), so programs need not name it; importing it by hand,
before or after torch, does the same. Neither ever raises: what went wrong is kept and raised, with its cause, at the
first use of the device. ``TORCH_OPENREG_AUTOLOAD=strict`` raises at once; ``=0`` leaves loading to an import by hand.
"""

from __future__ import annotations

from typing import Any

from torch_openreg import _loader

__all__ = ["cmake_prefix_path", "include_paths", "library_paths"]


def __getattr__(name: str) -> Any:
    if name in __all__ or name == "__version__":
        from torch_openreg import _paths

        return getattr(_paths, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not _loader.run_as_a_tool():
    _loader.load()
