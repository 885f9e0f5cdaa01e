"""Memory that grows from step to step, by the line that allocates it: a leak, although the program can still reach it.

A step ends with each call of an optimizer's step(), and with each torch.openreg.sanitizer.mark(). After some of the
steps (2, 3, 4, 6, 8, 12, ...) the blocks in use are counted, and the nodes of autograd that their tensors keep. A line
leaks if it has more blocks or nodes after each of these steps than after the one before, and at least one more for each
step. One block of at most 512 bytes a step, without nodes, is no leak: it is a number that the program keeps on the
device, such as a detached loss.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import Node
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
    what: str  # is counted: "blocks", or "nodes of autograd"
    steps: tuple[int, ...]
    counts: tuple[int, ...]
    bytes: int  # at the last of the steps


Line = tuple[str, str]  # the first two of Growing


class Count(NamedTuple):
    step: int
    blocks: Counter[Line]
    nodes: Counter[Line]
    bytes: Counter[Line]


class Growth:
    def __init__(self) -> None:
        self._step = 0
        self._next = 2
        self._counts: list[Count] = []
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
        count = Count(self._step, Counter(), Counter(), Counter())
        lines: dict[int, Line] = {}
        for place, block in _blocks():
            line = lines[block["address"]] = place, _site(block.get("frames", []))
            count.blocks[line] += 1
            count.bytes[line] += block["requested_size"]
        count.nodes.update({line: len(nodes) for line, nodes in _nodes(lines).items()})
        self._counts.append(count)

    def found(self) -> Iterator[Growing]:
        if len(self._counts) < LEAST:
            return
        first, last = self._counts[0], self._counts[-1]
        steps = tuple(count.step for count in self._counts)
        for line in last.blocks:
            nodes = tuple(count.nodes[line] for count in self._counts)
            blocks = tuple(count.blocks[line] for count in self._counts)
            least = 2 * (last.step - first.step)
            is_large = last.bytes[line] - first.bytes[line] > SMALL * (last.step - first.step)
            if _grows(steps, nodes):
                yield Growing(*line, "nodes of autograd", steps, nodes, last.bytes[line])
            elif _grows(steps, blocks) and (is_large or blocks[-1] - blocks[0] >= least):
                yield Growing(*line, "blocks", steps, blocks, last.bytes[line])


def _grows(steps: tuple[int, ...], counts: tuple[int, ...]) -> bool:
    """Whether there is at least one more for each step."""
    each = zip(steps, counts, steps[1:], counts[1:], strict=False)
    return all(more - few >= later - earlier for earlier, few, later, more in each)


def _nodes(lines: dict[int, Line]) -> dict[Line, set[object]]:
    """The nodes of autograd that the tensors of each line keep. ``lines``: for the address of each block."""
    found: defaultdict[Line, set[object]] = defaultdict(set)
    for value in gc.get_objects():
        if type(value) is torch.Tensor:
            with contextlib.suppress(RuntimeError):  # it has no memory, or its history is an error
                line = lines.get(torch._C._data_address(value))  # type: ignore[attr-defined]
                if line and value.grad_fn is not None:
                    _add(value.grad_fn, found[line])
    return found


def _add(node: Node, found: set[object]) -> None:
    """Adds a node of autograd, and all nodes that it keeps."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [each for each, _ in node.next_functions if each is not None]


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
