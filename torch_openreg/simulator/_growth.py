"""Memory that grows from step to step, by the line that allocates it: a leak, although the program can still reach it.

A step ends with each call of an optimizer's step(), and with each torch.openreg.sanitizer.mark(). After some of the
steps (2, 3, 4, 6, 8, 12, ...) the blocks in use are counted. A line leaks if it has more blocks after each of these
steps than after the one before, and at least one more for each step. One block of at most 512 bytes a step is no leak:
it is a number that the program keeps on the device, such as a loss.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_openreg import _C
from torch_openreg._identity import device_type
from torch_openreg.openreg import memory

LEAST = 4  # how many counts there must be
SMALL = 512  # bytes a step

_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen")


class Growing(NamedTuple):
    """A line whose memory grows. ``site``: as in sanitizer.Access. ``place``: the device, or "the host"."""

    place: str
    site: str
    steps: tuple[int, ...]
    blocks: tuple[int, ...]
    bytes: int  # at the last of the steps


class Growth:
    def __init__(self) -> None:
        self._step = 0
        self._next = 2
        self._counts: list[tuple[int, Counter[tuple[str, str]], Counter[tuple[str, str]]]] = []
        memory._record_memory_history("state", context="state", stacks="python")
        self._hook = register_optimizer_step_post_hook(lambda *arguments: self.mark())

    def close(self) -> None:
        self._hook.remove()

    def mark(self) -> None:
        """A step has ended."""
        if _C._isInBadFork():
            return
        self._step += 1
        if self._step == self._next:
            is_power = self._step & (self._step - 1) == 0
            self._next = self._step * 3 // 2 if is_power else self._step * 4 // 3
            self._count()

    def _count(self) -> None:
        blocks: Counter[tuple[str, str]] = Counter()
        sizes: Counter[tuple[str, str]] = Counter()
        for place, block in _blocks():
            key = place, _site(block.get("frames", []))
            blocks[key] += 1
            sizes[key] += block["requested_size"]
        self._counts.append((self._step, blocks, sizes))

    def found(self) -> Iterator[Growing]:
        if len(self._counts) < LEAST:
            return
        steps = tuple(step for step, _, _ in self._counts)
        _, last, sizes = self._counts[-1]
        for key in last:
            counts = tuple(blocks[key] for _, blocks, _ in self._counts)
            each = list(zip(steps, counts, steps[1:], counts[1:], strict=False))
            grows = all(more - few >= later - earlier for earlier, few, later, more in each)
            added = sizes[key] - self._counts[0][2][key]
            if grows and added > SMALL * (steps[-1] - steps[0]):
                yield Growing(*key, steps, counts, sizes[key])


def _blocks() -> Iterator[tuple[str, dict[str, Any]]]:
    for segment in memory.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield f"{device_type}:{segment['device']}", block
    for block in _C._recorded_pinned_memory():
        yield "the host", block


def _site(frames: list[dict[str, Any]]) -> str:
    for frame in frames:
        if not frame["filename"].startswith(_FOLDERS):
            return f"{frame['filename']}:{frame['line']} in {frame['name']}"
    return ""
