"""A backend, as ``torch.foo``. ``import torch`` loads it; ``import torch_foo`` does too, before or after torch.

Nothing above ``_autoload`` imports torch: with ``import torch_foo`` first, PyTorch calls ``_autoload`` while this
module waits for torch, and finds in it only what was defined until then.
"""

from __future__ import annotations

from types import ModuleType


def _autoload() -> ModuleType:
    """Called by PyTorch at the end of ``import torch``. A second call changes nothing."""
    import torch

    from torch_foo import foo

    # Autoload only calls us. We set torch.foo ourselves, unless another package has set it.
    if not hasattr(torch, "foo"):
        torch.foo = foo  # type: ignore[attr-defined]
    return foo


# For an import by hand if autoload is switched off.
_autoload()
