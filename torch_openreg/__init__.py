"""torch_openreg: a complete PyTorch accelerator that needs no hardware, as device ``"openreg"``.

``import torch`` loads this package (torch_openreg_autoload.py), so programs need not name it; importing it by hand,
before or after torch, does the same. Neither ever raises: what went wrong is kept and raised, with its cause, at the
first use of the device. ``TORCH_OPENREG_AUTOLOAD=strict`` raises at once; ``=0`` leaves loading to an import by hand.

``from torch_openreg import openreg`` gives ``torch.openreg``, with types: editors do not know the attribute of torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch_openreg import _loader

__all__ = ["cmake_prefix_path", "include_paths", "library_paths", "openreg"]

_autoload = _loader.load  # the name that it has in PyTorch's own torch_openreg

if TYPE_CHECKING:
    from torch_openreg import openreg as openreg
    from torch_openreg._paths import __version__ as __version__
    from torch_openreg._paths import cmake_prefix_path as cmake_prefix_path
    from torch_openreg._paths import include_paths as include_paths
    from torch_openreg._paths import library_paths as library_paths
else:

    def __getattr__(name: str) -> Any:
        if name in ("__version__", "cmake_prefix_path", "include_paths", "library_paths"):
            from torch_openreg import _paths

            return getattr(_paths, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


if not _loader.run_as_a_tool():
    _loader.load()
