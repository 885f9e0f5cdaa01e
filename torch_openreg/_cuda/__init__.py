"""torch.cuda on the face "cuda": what PyTorch's own Python finds in a build with CUDA, and not in a CPU build.

PyTorch's modules ask ``torch._C`` for what their C++ offers. Here it is supplied, with CUDA's meaning, by one module
for each area. Then the modules that looked for it when they were imported, and made dummies, are executed again.

Rule: PyTorch's own Python runs. A function of it is replaced only if that cannot be, and is then listed in REPLACED
with the reason.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Any

import torch

from torch_openreg._cuda import _comm, _device, _distributed, _memory, _missing, _profiler, _storage, _streams

# Attributes of torch._C.
SUPPLIED: dict[str, Any] = {
    **_comm.SUPPLIED,
    **_device.SUPPLIED,
    **_memory.SUPPLIED,
    **_missing.SUPPLIED,
    **_profiler.SUPPLIED,
    **_storage.SUPPLIED,
    **_streams.SUPPLIED,
}

# Executed again, in this order: they took names from torch._C, or dummies in their place, when they were imported.
EXECUTED_AGAIN = ("torch.cuda.streams", "torch.cuda.graphs", "torch.cuda.nvtx", "torch.cuda.memory", "torch.cuda")

# (module, or module:class; name; replacement; reason)
REPLACED: tuple[tuple[str, str, Any, str], ...] = (
    *_distributed.REPLACED,
    *_missing.REPLACED,
    *_profiler.REPLACED,
    *_storage.REPLACED,
)


def attach() -> None:
    """Makes torch.cuda this device's module."""
    for name, value in SUPPLIED.items():
        setattr(torch._C, name, value)
    for name in EXECUTED_AGAIN:
        importlib.reload(sys.modules[name])
    for owner, name, replacement, _ in REPLACED:
        setattr(pkgutil.resolve_name(owner), name, replacement)
    _storage.install()
    torch._C._openreg = True  # type: ignore[attr-defined]
