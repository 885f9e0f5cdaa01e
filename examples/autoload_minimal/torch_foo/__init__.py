"""A backend, as ``torch.foo``. ``import torch`` loads it; ``import torch_foo`` does too, before or after torch.

Nothing above ``_autoload`` imports torch: with ``import torch_foo`` first, PyTorch calls ``_autoload`` while this
module waits for torch, and finds in it only what was defined until then.
"""

from __future__ import annotations

from types import ModuleType


def _autoload() -> ModuleType:
    """What PyTorch calls at the end of ``import torch``. May be called again: it then changes nothing."""
    import torch

    from torch_foo import foo

    # Autoload calls us, and no more: torch.foo is ours to set, unless somebody has taken the name.
    if not hasattr(torch, "foo"):
        torch.foo = foo  # type: ignore[attr-defined]
    return foo


# For an import by hand where autoload is switched off.
_autoload()
