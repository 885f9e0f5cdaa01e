"""Less memory for a while, for the fixture ``openreg_memory``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch_openreg.openreg import memory
from torch_openreg.openreg._utils import DeviceLike

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(limit: int | str) -> int:
    """Bytes: of a number, or of a text such as ``"64M"`` with a suffix K, M or G. ValueError for anything else."""
    found = re.fullmatch(r"(\d+)([KMG]?)", str(limit).upper())
    if not found:
        raise ValueError(f"The limit {limit!r} is neither a number of bytes nor a text such as '64M'.")
    return int(found[1]) * _UNITS[found[2]]


@contextmanager
def limited(limit: int | str, device: DeviceLike | None = None) -> Iterator[None]:
    """The device has at most ``limit`` bytes for tensors until the end of the block. Gives its cache back first.

    ValueError if the device has less. Waits for the devices.
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
