"""Copies, allocation, and calls that should cost nearly nothing."""

from __future__ import annotations

import ctypes
import statistics
import time
from collections.abc import Iterator

import torch

from benchmarks import targets
from benchmarks.report import Row, ratio
from benchmarks.timing import Effort, Side, absolute, alternate, synchronizer

KB, MB = 1 << 10, 1 << 20


def measure_copies(device: str, effort: Effort) -> Iterator[Row]:
    """Blocking copies between host and device against C's memcpy, and at 4 KB against the CPU's own `copy_`.

    At 4 KB both times are mostly the cost of calling a PyTorch operator. memcpy does not have this cost.
    """
    for label, size in (("4 KB", 4 * KB), ("1 MB", MB), ("256 MB", 256 * MB)):
        # The tensors are written once before, so that the first access to a page is not timed.
        host, other = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
        pinned = host.clone() if device == "cpu" else host.pin_memory()
        there, peer = (torch.ones(size, dtype=torch.uint8, device=device) for _ in range(2))
        if size == 4 * KB:
            reference = Side("other.copy_(host)", {"other": other, "host": host}, "cpu")
        else:
            pointers = {"memcpy": ctypes.CDLL(None).memcpy, "size": ctypes.c_size_t(size)}
            pointers |= {"target": ctypes.c_void_p(other.data_ptr()), "source": ctypes.c_void_p(host.data_ptr())}
            reference = Side("memcpy(target, source, size)", pointers, "cpu")
        for name, target, source in (
            ("host to device", there, host),
            ("pinned to device", there, pinned),
            ("device to host", host, there),
            ("device to pinned", pinned, there),
            ("on the device", peer, there),
        ):
            side = Side("target.copy_(source)", {"target": target, "source": source}, device)
            yield ratio(f"{label}, {name}", alternate((side, reference), effort), targets.COPY[label])


def measure_allocation(device: str, effort: Effort) -> Iterator[Row]:
    """Allocating and freeing, against the CPU's time for 1 KB. Then allocating and filling 64 MB, in two rows.

    The first of the two rows uses memory from the device allocator's cache. For the second, the cache is emptied, so
    the system must provide new pages.
    """

    def side(size: int, place: str, statement: str = "empty(size, dtype=kind, device=device)") -> Side:
        names = {"empty": torch.empty, "size": size, "kind": torch.uint8, "device": torch.device(place)}
        return Side(statement, names, place)

    smallest = side(KB, "cpu")
    for label, size in (("1 KB", KB), ("1 MB", MB), ("64 MB", 64 * MB)):
        times = alternate((side(size, device), smallest), effort)
        yield ratio(f"allocate, free {label} (CPU: 1 KB)", times, targets.ALLOCATION)
    filling = "empty(size, dtype=kind, device=device).fill_(1)"
    both = [side(64 * MB, place, filling) for place in (device, "cpu")]
    yield ratio("allocate, fill, free 64 MB", alternate(both, effort), targets.ALLOCATE_FILL_FREE)

    cold: tuple[list[float], list[float]] = ([], [])
    for _ in range(max(effort.turns, 3)):
        for taken, place in zip(cold, (device, "cpu"), strict=True):
            wait = synchronizer(place)
            if place != "cpu":
                torch.accelerator.empty_cache()
            start = time.perf_counter()
            tensor = torch.empty(64 * MB, dtype=torch.uint8, device=place).fill_(1)
            wait()
            taken.append(time.perf_counter() - start)
            del tensor
    medians = statistics.median(cold[0]), statistics.median(cold[1])
    yield ratio("first fill of 64 MB, cache emptied", medians, targets.COLD_FILL)


def measure_latency(device: str, effort: Effort) -> Iterator[Row]:
    """`.item()` against the CPU's time; events and waits in microseconds."""
    sides = [Side("number.item()", {"number": torch.ones((), device=place)}, place) for place in (device, "cpu")]
    yield ratio(".item() of a 0-dim tensor", alternate(sides, effort), targets.ITEM)
    if device == "cpu":
        return
    stream = torch.accelerator.current_stream()
    names = {
        "event": torch.Event(device),
        "stream": stream,
        "synchronize": torch.accelerator.synchronize,
    }
    for name, statement, limit in (
        ("event record", "event.record(stream)", targets.EVENT_RECORD_US),
        ("synchronize an idle device", "synchronize()", targets.SYNCHRONIZE_US),
        ("synchronize an idle stream", "stream.synchronize()", targets.SYNCHRONIZE_US),
    ):
        seconds = absolute(Side(statement, names, device), effort)
        yield Row(name, seconds * 1e6, limit=limit, unit="µs", device=seconds)
    inline, queued = _seconds_a_launch(device, "inline", effort), _seconds_a_launch(device, "async", effort)
    longer = (queued - inline) * 1e6
    yield Row("a launch that is queued takes longer by", longer, "", targets.LAUNCH_US, "µs", queued, inline)


def _seconds_a_launch(device: str, mode: str, effort: Effort) -> float:
    """The median time of a call of `a + b`, while the device's queue has room for it."""
    burst = 500
    with torch.get_device_module(device).execution_mode(mode):
        a, b = torch.ones(16, device=device), torch.ones(16, device=device)
        times = []
        for _ in range(max(effort.turns, 3) * 10):
            torch.accelerator.synchronize()
            start = time.perf_counter()
            for _ in range(burst):
                a + b
            times.append((time.perf_counter() - start) / burst)
        torch.accelerator.synchronize()
    return statistics.median(times)
