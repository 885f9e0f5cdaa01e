"""Limits the device's memory for a while, for the fixture ``openreg_memory``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch_openreg.openreg import memory
from torch_openreg.openreg._utils import DeviceLike
from torch_openreg.simulator import _sizes


def byte_count(limit: int | str) -> int:
    """The bytes of a limit: a number, or a text such as ``"64M"`` with a suffix K, M or G. Else raises ValueError."""
    size = _sizes.byte_count(str(limit).upper())
    if size is None:
        raise ValueError(f"The limit {limit!r} is neither a number of bytes nor a text such as '64M'.")
    return size


@contextmanager
def limited(limit: int | str, device: DeviceLike | None = None) -> Iterator[None]:
    """Limits the memory of the device for tensors to ``limit`` bytes until the end of the block.

    The call first empties the cache, which waits for all devices. Raises ValueError if the device has less memory.
    """
    _, total = memory.mem_get_info(device)
    wanted = byte_count(limit)
    if wanted > total:
        raise ValueError(f"The limit of {wanted:,} bytes is more than the device has: {total:,}.")
    previous = memory.get_per_process_memory_fraction(device)
    memory.empty_cache()
    memory.set_per_process_memory_fraction(wanted / total, device)
    try:
        yield
    finally:
        memory.set_per_process_memory_fraction(previous, device)
