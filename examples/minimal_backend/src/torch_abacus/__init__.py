"""A PyTorch device in the least C++ that trains a network: ``torch.ones(2, device="abacus")``."""

from __future__ import annotations

import sys
from types import ModuleType


def _autoload() -> ModuleType | None:
    """Called by PyTorch at the end of ``import torch``. Returns None if another backend has PrivateUse1."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    if name == "abacus":
        return sys.modules["torch_abacus.abacus"]
    # If PrivateUse1 has a kernel already, another backend uses the device type, even if the type has no name yet.
    if name != "privateuseone" or torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::empty.memory_format", "PrivateUse1"
    ):
        return None
    from torch_abacus import _C, abacus  # noqa: F401  (the library of _C registers the kernels)

    torch.utils.rename_privateuse1_backend("abacus")
    torch._register_device_module("abacus", abacus)
    torch.utils.generate_methods_for_privateuse1_backend()  # Tensor.abacus(), Module.abacus(), is_abacus
    return abacus


# With autoload switched off, an explicit `import torch_abacus` loads the backend.
_autoload()
