"""torch.cuda for simulated devices: the attributes that PyTorch's Python finds only in a build with CUDA.

PyTorch's modules use attributes of ``torch._C`` that its C++ code provides. Here one module for each area provides
them, with CUDA's meaning. Some modules of PyTorch looked for these attributes when they were imported, and made
dummies; these modules are executed again.

_upstream.py has the functions of PyTorch that are replaced.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import torch

from torch_openreg import _upstream, openreg
from torch_openreg._cuda import _comm, _device, _distributed, _graphs, _memory, _missing, _profiler, _storage, _streams
from torch_openreg._cuda._upstream import AT_START, DISTRIBUTED

# Attributes of torch._C.
SUPPLIED: dict[str, Any] = {
    **_comm.SUPPLIED,
    **_device.SUPPLIED,
    **_distributed.SUPPLIED,
    **_graphs.SUPPLIED,
    **_memory.SUPPLIED,
    **_missing.SUPPLIED,
    **_profiler.SUPPLIED,
    **_storage.SUPPLIED,
    **_streams.SUPPLIED,
}

# Modules that are executed again, in this order: at their import they took names from torch._C, or made dummies.
EXECUTED_AGAIN = ("torch.cuda.streams", "torch.cuda.graphs", "torch.cuda.nvtx", "torch.cuda.memory", "torch.cuda")


def attach() -> None:
    """Makes torch.cuda this device's module."""
    for name, value in SUPPLIED.items():
        setattr(torch._C, name, value)
    for name in EXECUTED_AGAIN:
        importlib.reload(sys.modules[name])
    # The reload has made a new class torch.cuda.Event. This call registers how its objects are pickled.
    torch.multiprocessing.reductions.init_reductions()
    _upstream.apply(AT_START)
    if torch.distributed.is_available():
        _upstream.apply(DISTRIBUTED)
        _distributed.register_nccl()
    _storage.install()
    # PyTorch starts the device through torch.cuda, where calls may be queued.
    for name in ("init", "_lazy_init", "_lazy_call", "is_initialized"):
        setattr(openreg, name, getattr(torch.cuda, name))
    openreg.DeferredOpenRegCallError = torch.cuda.DeferredCudaCallError  # type: ignore[misc, assignment]
    torch._C._openreg = True  # type: ignore[attr-defined]
