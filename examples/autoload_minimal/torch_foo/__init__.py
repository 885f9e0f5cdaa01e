"""The backend ``torch.foo``. ``import torch`` loads it, and so does ``import torch_foo``, before or after torch.

No line above ``_autoload`` imports torch. If a program imports torch_foo first, PyTorch calls ``_autoload`` while this
module waits for torch, and finds only the names that this module has defined until then.
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


# Loads the backend if autoload is switched off and a program imports torch_foo.
_autoload()
