"""What ``import torch`` calls: the ``torch.backends`` entry point of torch_openreg.

A module of its own, because PyTorch loads the entry point's module with an import that fails if another thread is in
the middle of importing it, which for torch_openreg means: waiting for torch.
"""

from __future__ import annotations

import os
import sys
from types import ModuleType


def _autoload() -> ModuleType | None:
    """Brings the backend up. Returns ``torch.openreg``, or None if TORCH_OPENREG_AUTOLOAD=0 leaves it out.

    torch_openreg may be half imported at this point, by the import that made this thread or another one import torch.
    """
    if os.environ.get("TORCH_OPENREG_AUTOLOAD") == "0":
        return None
    try:
        import torch_openreg
    except RuntimeError:
        # importlib's deadlock error, if another thread has just begun to import it and waits for torch.
        if "torch_openreg" not in sys.modules:
            raise
        torch_openreg = sys.modules["torch_openreg"]
    return torch_openreg._loader.load()
