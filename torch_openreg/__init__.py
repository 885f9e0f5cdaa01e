"""torch_openreg: a complete PyTorch accelerator that needs no hardware, as device ``"openreg"``.

``import torch`` loads this package (torch_openreg_autoload.py), so programs need not import it. An import by hand,
before or after torch, has the same effect. Neither import ever raises: a failure is kept, and the first use of the
device raises it, with its cause. ``TORCH_OPENREG_AUTOLOAD=strict`` raises at once. With ``TORCH_OPENREG_AUTOLOAD=0``
only an import by hand loads the package.

``from torch_openreg import openreg`` gives the same module as ``torch.openreg``, but with types for editors: they do
not know the attribute ``torch.openreg``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_openreg._loader import load as _autoload  # the name in PyTorch's documentation
from torch_openreg._loader import run_as_a_tool as _run_as_a_tool

if TYPE_CHECKING:
    from torch_openreg import openreg as openreg
    from torch_openreg._paths import __version__ as __version__
    from torch_openreg._paths import cmake_prefix_path as cmake_prefix_path
    from torch_openreg._paths import include_paths as include_paths
    from torch_openreg._paths import library_paths as library_paths
else:
    from torch_openreg._loader import LAZY as __all__  # noqa: F401
    from torch_openreg._loader import lazy_attribute as __getattr__  # noqa: F401

if not _run_as_a_tool():
    _autoload()
