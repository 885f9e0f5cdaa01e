"""``torch.openreg``: the device's own module, as ``torch.cuda`` is CUDA's.

Functions that take a ``device`` accept an index, ``"openreg:1"``, a ``torch.device``, or None for the current device.
An index without a device raises ``RuntimeError: The device index is out of range. It must be in [0, N), but got M.``
The shared libraries are loaded with this module; the device itself starts at its first use. After that a forked child
cannot use it, as with CUDA.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch

from torch_openreg import _C
from torch_openreg._C import _OpenRegDeviceProperties

from . import _utils as _utils  # torch.load looks for it
from ._utils import DeviceLike, _get_device_index, existing_device


def init() -> None:
    """Starts the device, which otherwise happens at its first use. May be called again. As ``torch.cuda.init``.

    Raises RuntimeError in a child forked after the device started, and for an environment variable of the device that
    makes no sense.
    """
    _lazy_init()


def _lazy_init() -> None:
    """What PyTorch calls before it first uses the device."""
    global _initialized
    _C._init()
    _initialized = True


_initialized = False


def is_initialized() -> bool:
    """Whether the device has started, and can be used in this process. As ``torch.cuda.is_initialized``."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this is a child forked after the device started, which cannot use it."""
    return _C._isInBadFork()


def is_available() -> bool:
    """Whether there is a device. Starts nothing, and never raises. As ``torch.cuda.is_available``."""
    return device_count() > 0


def device_count() -> int:
    """The number of visible devices: OPENREG_DEVICE_COUNT, less what OPENREG_VISIBLE_DEVICES hides. Starts nothing.

    0, with one warning, if the environment makes no sense. As ``torch.cuda.device_count``.
    """
    return _C._get_device_count()


def current_device() -> int:
    """The index of the calling thread's current device. As ``torch.cuda.current_device``."""
    return _C._get_device()


def set_device(device: DeviceLike) -> None:
    """Makes ``device`` the calling thread's current device; a negative index changes nothing.

    As ``torch.cuda.set_device``. ``with torch.openreg.device(...)`` restores the previous one, which is mostly better.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C._set_device(index)


class device:
    """Context manager that makes ``device`` the calling thread's current device, and then restores the previous one.

    None and negative indices change nothing. As ``torch.cuda.device``.
    """

    def __init__(self, device: DeviceLike | None) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C._exchangeDevice(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _C._exchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage the current one. As ``torch.cuda.device_of``.

    Changes nothing if ``obj`` lies on another kind of device.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == "openreg" else -1)


def get_device_properties(device: DeviceLike | None = None) -> _OpenRegDeviceProperties:
    """Name, ``total_memory`` (bytes), ``multi_processor_count``, ``major`` and ``minor`` of a device.

    Default: the current device. As ``torch.cuda.get_device_properties``.
    """
    _lazy_init()
    return _C._get_device_properties(existing_device(device))


def get_device_name(device: DeviceLike | None = None) -> str:
    """The device's name. Default: the current device. As ``torch.cuda.get_device_name``."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """Major and minor version of the device. Default: the current device. As ``torch.cuda.get_device_capability``."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether ``device`` reads ``peer_device``'s memory: any two different ones do.

    As ``torch.cuda.can_device_access_peer``.
    """
    _lazy_init()
    return _C._can_device_access_peer(existing_device(device), existing_device(peer_device))


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits for all work of all streams of a device (default: the current one). As ``torch.cuda.synchronize``.

    Raises what a kernel or copy failed with, if that was not raised before.
    """
    _lazy_init()
    torch.accelerator.synchronize(existing_device(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True: the kernels are the CPU's, which know bfloat16, so that ``including_emulation`` makes no difference.

    As ``torch.cuda.is_bf16_supported``.
    """
    return True


def is_tf32_supported() -> bool:
    """False: matrix products of float32 are exact to float32. As ``torch.cuda.is_tf32_supported``."""
    return False


def _get_generator(device: DeviceLike | None = None) -> torch.Generator:
    """A device's default generator. Core PyTorch calls it, as it calls ``torch.cuda._get_generator``."""
    return _C._get_default_generator(existing_device(device))


def device_memory_used(device: DeviceLike | None = None) -> int:
    """Bytes of a device's memory that are taken, used or cached. Default: the current device.

    As ``torch.cuda.device_memory_used``.
    """
    from .memory import mem_get_info

    free, total = mem_get_info(device)
    return total - free


# Where the other names live; execution, memory, random and streams have their __all__ from here. Loaded at their first
# use, since `import torch` pays for what is loaded here.
_SUBMODULES = {
    "_reductions": ("ipc_collect",),
    "_tensor_types": (
        "BFloat16Storage",
        "BFloat16Tensor",
        "BoolStorage",
        "BoolTensor",
        "ByteStorage",
        "ByteTensor",
        "CharStorage",
        "CharTensor",
        "ComplexDoubleStorage",
        "ComplexFloatStorage",
        "DoubleStorage",
        "DoubleTensor",
        "FloatStorage",
        "FloatTensor",
        "HalfStorage",
        "HalfTensor",
        "IntStorage",
        "IntTensor",
        "LongStorage",
        "LongTensor",
        "ShortStorage",
        "ShortTensor",
    ),
    "amp": ("get_amp_supported_dtype",),
    "execution": (
        "execution_mode",
        "get_execution_mode",
        "get_sync_debug_mode",
        "record_launch_sites",
        "set_sync_debug_mode",
    ),
    "fallback": (),
    "memory": (
        "MemPool",
        "caching_allocator_alloc",
        "caching_allocator_delete",
        "empty_cache",
        "get_allocator_backend",
        "get_per_process_memory_fraction",
        "host_memory_stats",
        "host_memory_stats_as_nested_dict",
        "max_memory_allocated",
        "max_memory_reserved",
        "mem_get_info",
        "memory_allocated",
        "memory_reserved",
        "memory_snapshot",
        "memory_stats",
        "memory_stats_as_nested_dict",
        "memory_summary",
        "reset_accumulated_host_memory_stats",
        "reset_accumulated_memory_stats",
        "reset_peak_host_memory_stats",
        "reset_peak_memory_stats",
        "set_per_process_memory_fraction",
        "use_mem_pool",
    ),
    "meta": (),
    "random": (
        "get_rng_state",
        "get_rng_state_all",
        "initial_seed",
        "manual_seed",
        "manual_seed_all",
        "seed",
        "seed_all",
        "set_rng_state",
        "set_rng_state_all",
    ),
    "streams": (
        "Event",
        "Stream",
        "StreamContext",
        "current_stream",
        "default_stream",
        "set_stream",
        "stream",
    ),
}
_HOMES = {name: submodule for submodule, names in _SUBMODULES.items() for name in names}

__all__ = [
    "can_device_access_peer",
    "current_device",
    "default_generators",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "is_tf32_supported",
    "set_device",
    "synchronize",
    *(name for name in (*_HOMES, *_SUBMODULES) if not name.startswith("_")),
]


def __getattr__(name: str) -> Any:
    # torch.cuda fills this tuple when the device starts; here there is no such moment, and none is needed.
    if name == "default_generators":
        return tuple(_C._get_default_generator(index) for index in range(device_count()))
    if name == "_gpu_trace":  # the registries of callbacks: PyTorch's tracer looks for them here
        return importlib.import_module("torch.cuda._gpu_trace")
    if name in _SUBMODULES:
        return importlib.import_module(f".{name}", __name__)
    if name in _HOMES:
        value = getattr(__getattr__(_HOMES[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'torch.openreg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "TORCH_OPENREG_FALLBACK" in os.environ:
    from . import fallback as fallback  # obeys it
