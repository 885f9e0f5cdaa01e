"""Devices: what torch/csrc/cuda/Module.cpp offers about them."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch

from torch_openreg import _C


def _init() -> None:
    """Called by torch.cuda._lazy_init(), before the calls that were queued until then."""
    _C._init()
    torch.cuda.default_generators = tuple(
        _C._get_default_generator(index) for index in range(_C._get_device_count())
    )


def _synchronize() -> None:
    torch.accelerator.synchronize()


class _Cudart(ModuleType):
    """What torch.cuda.cudart() returns, as far as PyTorch's own Python asks."""

    class cudaError:
        success = 0

    def __init__(self) -> None:
        super().__init__("torch._C._cudart", "The simulated device's share of CUDA's runtime API.")

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        """Free and total memory of a device, in bytes."""
        return torch.accelerator.get_memory_info(device)  # type: ignore[attr-defined]


SUPPLIED: dict[str, Any] = {
    "_has_cuda": True,
    "_cudart": _Cudart(),
    "_cuda_init": _init,
    "_cuda_getDeviceCount": _C._get_device_count,
    "_cuda_getDevice": _C._get_device,
    "_cuda_setDevice": _C._set_device,
    "_cuda_exchangeDevice": _C._exchangeDevice,
    "_cuda_maybeExchangeDevice": _C._exchangeDevice,
    "_cuda_isInBadFork": _C._isInBadFork,
    "_cuda_synchronize": _synchronize,
    "_cuda_canDeviceAccessPeer": _C._can_device_access_peer,
    "_cuda_set_sync_debug_mode": _C._set_sync_debug_mode,
    "_cuda_get_sync_debug_mode": _C._get_sync_debug_mode,
}
