"""Watches one call through the device's public C API (openreg_activity.h). Compares all device memory before and after.

Activities must report each byte that the call changed. A byte that is in use before or after the call must lie in an
operand that a kernel, a copy or a fill writes. For a byte of a block that the call allocated and freed again, a report
of the block's allocation is enough.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import openreg_c as c
import torch

from torch_openreg import openreg

COMPUTES = c.KERNEL | c.COPY | c.FILL


class Ranges:
    """A set of bytes."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        merged: list[list[int]] = []
        for begin, end in sorted(ranges):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            elif begin < end:
                merged.append([begin, end])
        self.begins = np.array([begin for begin, _ in merged], dtype=np.int64)
        self.ends = np.array([end for _, end in merged], dtype=np.int64)

    def contains(self, addresses: np.ndarray) -> np.ndarray:
        if not len(self.begins):
            return np.zeros(len(addresses), dtype=bool)
        index = np.searchsorted(self.begins, addresses, side="right") - 1
        return (index >= 0) & (addresses < self.ends[index])


def _contents() -> dict[int, np.ndarray]:
    """The bytes of every segment of device memory, by address."""
    result = {}
    for segment in openreg.memory_snapshot():
        data = np.empty(segment["total_size"], dtype=np.uint8)
        c.call("orMemcpy", data.ctypes.data, segment["address"], data.nbytes, c.DEFAULT)
        result[segment["address"]] = data
    return result


def _changed(before: dict[int, np.ndarray], after: dict[int, np.ndarray]) -> np.ndarray:
    """Addresses of the bytes that differ. A new segment is compared with zeros, which it held at first."""
    found = [np.empty(0, dtype=np.int64)]
    for address, now in after.items():
        was = before.get(address)
        difference = np.flatnonzero(now != was if was is not None and len(was) == len(now) else now)
        found.append(difference + address)
    return np.concatenate(found)


def _blocks_in_use() -> Ranges:
    return Ranges(
        (block["address"], block["address"] + block["requested_size"])  # the rest of the block may hold an older tensor
        for segment in openreg.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    )


def watch(fn: Callable[[], Any], stream: int) -> tuple[Any, int, list[str]]:
    """Calls `fn`, and returns its result, the number of kernels, copies and fills that it ran, and what went wrong."""
    gc.disable()  # a garbage collection would free tensors after `before` is read
    try:
        openreg.synchronize()
        before = _contents()
        in_use_before = _blocks_in_use()
        with c.Observer(COMPUTES | c.ALLOCATION) as observer:
            result = fn()
            openreg.synchronize()
    finally:
        gc.enable()
    after = _contents()
    changed = _changed(before, after)

    faults = []
    begun = [event for event in observer.events if event[0] & COMPUTES and event[1] == c.BEGIN]
    ended = [event for event in observer.events if event[0] & COMPUTES and event[1] == c.END]
    if sorted(event[2] for event in begun) != sorted(event[2] for event in ended):
        faults.append("a begin without an end, or an end without a begin")
    for event in begun:
        if event[4] != stream:
            faults.append(f"{event[5]} ran on stream {event[4]}, not on {stream}")
    written = Ranges(
        (begin, end)
        for event in observer.events
        if event[0] & COMPUTES
        for begin, end, access in event[7]
        if access & c.WRITE
    )
    taken = Ranges((begin, end) for event in observer.events if event[0] == c.ALLOCATION for begin, end, _ in event[7])
    in_use = in_use_before.contains(changed) | _blocks_in_use().contains(changed)
    untold = changed[~written.contains(changed) & (in_use | ~taken.contains(changed))]
    if len(untold):
        names = sorted({str(event[5]) for event in begun})
        faults.append(f"{len(untold)} bytes changed that no operand covers, from {untold[0]:#x} on; kernels: {names}")
    if len(changed) and not begun:
        faults.append("memory changed, and no kernel was told")
    return result, len(begun), faults


def native_handle(stream: torch.Stream) -> int:
    return ctypes.c_void_p(stream.native_handle).value or 0
