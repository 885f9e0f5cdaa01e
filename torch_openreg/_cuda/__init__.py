"""torch.cuda for simulated devices: the attributes that PyTorch's Python finds only in a build with CUDA.

This package is used only with TORCH_OPENREG_AS=cuda, which gives the devices the type "cuda" (the face "cuda").

PyTorch's modules use attributes of ``torch._C`` that its C++ code provides. Here one module for each area provides
them, with CUDA's meaning. Some modules of PyTorch looked for these attributes when they were imported, and made
dummies; these modules are executed again.

Rule: PyTorch's own Python code runs. A function of PyTorch is replaced only if there is no other way. REPLACED lists
the replaced functions, with the reason. Each reason is of one of these KINDS:

- "taken at import": a module took the function or constant from torch._C, so that a supplied attribute has no effect.
- "compiled out": the C++ code for CUDA behind the function, which a CPU build does not have.
- "no version of CUDA": the function reads torch.version.cuda, which stays None.
- "other libraries": the function asks NVML about real GPUs, or gives addresses to libraries that use a real GPU.
- "the CPU's kernels": the function answers for CUDA's kernels, and the CPU's kernels run here.
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
    **_distributed.SUPPLIED,
    **_memory.SUPPLIED,
    **_missing.SUPPLIED,
    **_profiler.SUPPLIED,
    **_storage.SUPPLIED,
    **_streams.SUPPLIED,
}

# Modules that are executed again, in this order: at their import they took names from torch._C, or made dummies.
EXECUTED_AGAIN = ("torch.cuda.streams", "torch.cuda.graphs", "torch.cuda.nvtx", "torch.cuda.memory", "torch.cuda")

KINDS = ("taken at import", "compiled out", "no version of CUDA", "other libraries", "the CPU's kernels")

# (module, or module:class; name; replacement; kind of the reason: reason)
REPLACED: tuple[tuple[str, str, Any, str], ...] = (
    *_device.REPLACED,
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
    # The reload has made a new class torch.cuda.Event. This call registers how its objects are pickled.
    torch.multiprocessing.reductions.init_reductions()
    for owner, name, replacement, _ in REPLACED:
        setattr(pkgutil.resolve_name(owner), name, replacement)
    _storage.install()
    torch._C._openreg = True  # type: ignore[attr-defined]
