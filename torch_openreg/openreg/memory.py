"""Device memory, as ``torch.cuda.memory``. Sizes are bytes; the default device is the current one.

Every function asks ``torch.accelerator.memory``, which asks the backend's allocator; here it has CUDA's names.
Before the device has started all counts are 0. Only ``mem_get_info`` starts it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from . import _lazy_init
from ._utils import DeviceLike, existing_device

__all__ = [
    "empty_cache",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "reset_accumulated_memory_stats",
    "reset_peak_memory_stats",
]


def empty_cache() -> None:
    """Gives the memory that no tensor occupies back to the system. As ``torch.cuda.empty_cache``."""
    torch.accelerator.empty_cache()


def mem_get_info(device: DeviceLike | None = None) -> tuple[int, int]:
    """Free and total memory of a device. As ``torch.cuda.mem_get_info``."""
    _lazy_init()
    return torch.accelerator.get_memory_info(existing_device(device))


def memory_allocated(device: DeviceLike | None = None) -> int:
    """What tensors occupy now. As ``torch.cuda.memory_allocated``."""
    return torch.accelerator.memory_allocated(existing_device(device))


def max_memory_allocated(device: DeviceLike | None = None) -> int:
    """The most that tensors occupied since the start or ``reset_peak_memory_stats``.

    As ``torch.cuda.max_memory_allocated``.
    """
    return torch.accelerator.max_memory_allocated(existing_device(device))


def memory_reserved(device: DeviceLike | None = None) -> int:
    """What the allocator has taken from the device now, used or cached. As ``torch.cuda.memory_reserved``."""
    return torch.accelerator.memory_reserved(existing_device(device))


def max_memory_reserved(device: DeviceLike | None = None) -> int:
    """The most that the allocator held since the start or ``reset_peak_memory_stats``.

    As ``torch.cuda.max_memory_reserved``.
    """
    return torch.accelerator.max_memory_reserved(existing_device(device))


def memory_stats(device: DeviceLike | None = None) -> OrderedDict[str, Any]:
    """The allocator's counters, under CUDA's keys; empty before its first use. As ``torch.cuda.memory_stats``."""
    return torch.accelerator.memory_stats(existing_device(device))


def memory_stats_as_nested_dict(device: DeviceLike | None = None) -> dict[str, Any]:
    """The same counters, nested; empty before its first use. As ``torch.cuda.memory_stats_as_nested_dict``."""
    index = existing_device(device)
    return torch._C._accelerator_getDeviceStats(index) if torch._C._accelerator_isAllocatorInitialized() else {}


def reset_peak_memory_stats(device: DeviceLike | None = None) -> None:
    """Peaks start again from what is held now. As ``torch.cuda.reset_peak_memory_stats``."""
    torch.accelerator.reset_peak_memory_stats(existing_device(device))


def reset_accumulated_memory_stats(device: DeviceLike | None = None) -> None:
    """Historical totals (the ``allocated`` and ``freed`` keys) start again from 0.

    As ``torch.cuda.reset_accumulated_memory_stats``.
    """
    torch.accelerator.reset_accumulated_memory_stats(existing_device(device))
