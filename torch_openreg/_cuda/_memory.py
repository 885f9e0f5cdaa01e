"""Memory: what torch/csrc/cuda/Module.cpp and MemPool.cpp offer about the allocator."""

from __future__ import annotations

from typing import Any

import torch

from torch_openreg import _C


def _empty_cache() -> None:
    torch._C._accelerator_emptyCache()


SUPPLIED: dict[str, Any] = {
    "_cuda_emptyCache": _empty_cache,
    "_cuda_setMemoryFraction": _C._set_memory_fraction,
    "_cuda_getMemoryFraction": _C._get_memory_fraction,
    "_cuda_resetPeakMemoryStats": torch._C._accelerator_resetPeakStats,
    "_cuda_resetAccumulatedMemoryStats": torch._C._accelerator_resetAccumulatedStats,
    "_cuda_getAllocatorBackend": lambda: "native",
}
