"""Devices: the functions of torch/csrc/cuda/Module.cpp and shared/cudart.cpp about devices."""

from __future__ import annotations

import ctypes
import operator
import os
import sys
import warnings
from numbers import Integral
from types import ModuleType
from typing import Any

import torch

from torch_openreg import _failure
from torch_openreg._cuda import _bindings as _C
from torch_openreg._identity import is_still_chosen


def _init() -> None:
    """Starts the device. torch.cuda._lazy_init() calls this function before it makes the calls that were queued."""
    if not is_still_chosen():
        _failure.warn_of_other_type()
    if _C._count_devices() == 0:
        raise RuntimeError("No CUDA GPUs are available")
    _C._init()
    if os.environ.get("CUDA_LAUNCH_BLOCKING") == "1":
        _C._set_execution_mode("inline", 0)  # a kernel has run when its launch returns
    torch.cuda._get_device_properties = _C._get_device_properties  # type: ignore[attr-defined]
    generators = tuple(_C._get_default_generator(index) for index in range(_C._get_device_count()))
    torch.cuda.default_generators = generators


def _set_device(device: int) -> None:
    torch.cuda.init()
    _C._set_device(device)


def _exchange_device(device: int | None) -> int:
    if device is None:  # torch.cuda.device(None), if no device is visible
        raise RuntimeError("invalid argument to exchangeDevice")
    if device < 0:
        return -1
    torch.cuda.init()
    return _C._exchangeDevice(device)


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)  # two functions, because dynamo has a handler for each of the two names


def _arch_flags() -> str | None:
    """The architectures that PyTorch was built for: here that of device 0 only. None if there is no device."""
    if not _C._get_device_count():
        return None
    properties = _C._get_device_properties(0)
    return f"sm_{properties.major}{properties.minor}"


def _has_primary_context(device: int) -> bool:
    return torch.cuda.is_initialized() and 0 <= device < _C._get_device_count()


_told = False  # whether _set_sync_debug_mode() gave its notice


def _is_long(value: object) -> bool:
    """As THPUtils_checkLong."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _set_sync_debug_mode(mode: int) -> None:
    """As THCPModule_cudaSetSyncDebugMode, whose notice is a TORCH_WARN_ONCE: a wrong mode has the notice too."""
    global _told
    try:
        if not _is_long(mode):
            raise RuntimeError("invalid argument to set_sync_debug_mode")
        if mode not in (0, 1, 2):
            raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
        _C._set_sync_debug_mode(mode)
    finally:
        if not _told or torch.is_warn_always_enabled():
            _told = True
            warnings.warn(
                "Synchronization debug mode is a prototype feature and does not yet detect all synchronizing "
                "operations",
                stacklevel=2,  # torch/cuda/__init__.py, as for a warning of PyTorch's C++
            )


def _sleep(cycles: int) -> None:
    if not _is_long(cycles):
        raise RuntimeError("torch.cuda._sleep(): expected 'int'")
    _C._sleep(cycles)


def _raw_device_count() -> int:
    """The number of all devices, from which CUDA_VISIBLE_DEVICES selects.

    Does not ask the device library, which reads the environment only once: a program may still change the variables.
    Negative if OPENREG_VISIBLE_DEVICES is set, or if OPENREG_DEVICE_COUNT is not valid: torch.cuda.device_count() then
    asks the device library, which knows what to do.
    """
    if "OPENREG_VISIBLE_DEVICES" in os.environ:
        return -1
    if text := os.environ.get("OPENREG_DEVICE_COUNT"):
        return int(text) if text.isdecimal() and 1 <= int(text) <= 64 else -1
    models = sys.modules.get("torch_openreg.openreg.models")  # importing the module could choose a model
    model = models and models._current
    return (model and model.numbers.get("device_count")) or 2


def _raw_device_uuids() -> list[str] | None:
    """The UUIDs of all devices; None if _raw_device_count() is negative.

    They equal those of deviceUuid() in third_party/openreg/csrc/environment.cpp.
    """
    count = _raw_device_count()
    return None if count < 0 else [f"GPU-4f70656e-5265-6700-0000-{index:012x}" for index in range(count)]


class _CudaError(int):
    """A code of CUDA's runtime API. Any integer is a code; ``success`` is the only one with a name."""

    success: _CudaError

    def __new__(cls, value: int) -> _CudaError:
        return super().__new__(cls, operator.index(value))

    def __str__(self) -> str:
        return int.__repr__(self) if self else "cudaError.success"


_CudaError.success = _CudaError(0)


class _Cudart(ModuleType):
    """The object that torch.cuda.cudart() returns: the functions of CUDA's runtime API that PyTorch gives to Python."""

    cudaError = _CudaError

    def __init__(self) -> None:
        super().__init__("torch._C._cudart", "The simulated device's share of CUDA's runtime API.")

    @staticmethod
    def cudaGetErrorString(error: int) -> str:
        """The text of a code. The device's codes have the same values as CUDA's."""
        return _C._error_string(error)

    @staticmethod
    def cudaMemGetInfo(device: int) -> tuple[int, int]:
        """The free and the total memory of a device, in bytes."""
        return torch.accelerator.get_memory_info(device)

    @staticmethod
    def cudaProfilerStart() -> int:
        """Calls torch.openreg.profiler.start(), which has an effect only if TORCH_OPENREG_TRACE names a file."""
        from torch_openreg.openreg import profiler

        profiler.start()
        return _CudaError.success

    @staticmethod
    def cudaProfilerStop() -> int:
        """Calls torch.openreg.profiler.stop()."""
        from torch_openreg.openreg import profiler

        profiler.stop()
        return _CudaError.success

    @staticmethod
    def cudaStreamCreate(pointer: int) -> int:
        """Writes a stream's handle to the address ``pointer`` of the host. The stream is from PyTorch's pool."""
        ctypes.c_void_p.from_address(pointer).value = torch.cuda.Stream().cuda_stream
        return _CudaError.success

    @staticmethod
    def cudaStreamDestroy(stream: int) -> int:
        """Returns success, and does nothing: the streams of the pool stay."""
        return _CudaError.success

    @staticmethod
    def cudaHostRegister(pointer: int, size: int, flags: int) -> int:
        """Makes the ``size`` bytes at the address ``pointer`` of the host pinned memory. ``flags`` have no effect."""
        return _CudaError(_C._host_register(pointer, size))

    @staticmethod
    def cudaHostUnregister(pointer: int) -> int:
        """Ends cudaHostRegister() for this address. Waits for the devices."""
        return _CudaError(_C._host_unregister(pointer))


SUPPLIED: dict[str, Any] = {
    "_has_cuda": True,
    "_cudart": _Cudart(),
    "_CudaDeviceProperties": _C._CudaDeviceProperties,
    "_CUuuid": _C._CUuuid,
    "_cuda_init": _init,
    "_cuda_getDeviceCount": _C._get_device_count,
    "_cuda_getDevice": _C._get_device,
    "_cuda_setDevice": _set_device,
    "_cuda_exchangeDevice": _exchange_device,
    "_cuda_maybeExchangeDevice": _maybe_exchange_device,
    "_cuda_isInBadFork": _C._isInBadFork,
    "_cuda_hasPrimaryContext": _has_primary_context,
    "_cuda_getArchFlags": _arch_flags,
    "_cuda_getCompiledVersion": lambda: 0,  # torch.version.cuda is None
    "_cuda_synchronize": torch.accelerator.synchronize,
    "_cuda_canDeviceAccessPeer": _C._can_device_access_peer,
    "_cuda_set_sync_debug_mode": _set_sync_debug_mode,
    "_cuda_get_sync_debug_mode": _C._get_sync_debug_mode,
    "_cuda_sleep": _sleep,
}
