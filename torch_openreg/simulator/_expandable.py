"""What CUDA's allocator would reserve with ``expandable_segments:True``, from the history of one that has no such segments.

The rules are those of c10/cuda/CUDACachingAllocator.cpp: each stream has one segment for small blocks and one for large
blocks. A segment begins empty, and grows at its end in steps of 2 MiB or 20 MiB. A block takes the smallest free range
that is large enough, and the end of the segment only if there is none. A segment shrinks only if memory runs out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Mapping
from typing import Any

MIB = 1 << 20
ROUNDING = 512  # kMinBlockSize
SMALL = MIB  # kSmallSize: the largest small block
GROWTH = {True: 2 * MIB, False: 20 * MIB}  # kSmallBuffer, kLargeBuffer: of the segment for small blocks, and for large


class Segment:
    """The addresses of one segment, from 0."""

    def __init__(self, growth: int) -> None:
        self.mapped = 0
        self._growth = growth
        self._free: list[tuple[int, int]] = []  # size and begin
        self._at: dict[int, int] = {}  # begin -> end of each free range
        self._before: dict[int, int] = {}  # end -> begin

    def _add(self, begin: int, end: int) -> None:
        if begin < end:
            insort(self._free, (end - begin, begin))
            self._at[begin], self._before[end] = end, begin

    def _remove(self, begin: int) -> int:
        end = self._at.pop(begin)
        del self._before[end]
        del self._free[bisect_left(self._free, (end - begin, begin))]
        return end

    def take(self, size: int) -> int:
        """The address of a new block."""
        at = bisect_left(self._free, (size, 0))
        last = self._before.get(self.mapped, self.mapped)  # the free range that can grow counts as the largest
        fitting = next((begin for _, begin in self._free[at : at + 2] if begin != last), last)
        end = self._remove(fitting) if fitting in self._at else self.mapped
        if (missing := fitting + size - end) > 0:
            self.mapped += -(-missing // self._growth) * self._growth
            end = self.mapped
        self._add(fitting + size, end)
        return fitting

    def give(self, begin: int, size: int) -> None:
        """Frees a block."""
        end = begin + size
        if end in self._at:
            end = self._remove(end)
        if begin in self._before:
            begin = self._before[begin]
            self._remove(begin)
        self._add(begin, end)


def reserved(history: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """The bytes that the segments have when the history ends, and how many segments there are. The history has all
    allocations of one device."""
    segments: dict[tuple[int, bool], Segment] = {}
    blocks: dict[int, tuple[Segment, int, int]] = {}
    for entry in history:
        if entry["action"] == "alloc":
            size = max(-(-entry["size"] // ROUNDING), 1) * ROUNDING
            key = (entry["stream"], size <= SMALL)
            segment = segments.setdefault(key, Segment(GROWTH[key[1]]))
            blocks[entry["addr"]] = (segment, segment.take(size), size)
        elif entry["action"] == "free_completed" and entry["addr"] in blocks:
            segment, begin, size = blocks.pop(entry["addr"])
            segment.give(begin, size)
    return sum(each.mapped for each in segments.values()), len(segments)
