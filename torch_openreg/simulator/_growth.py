"""Memory that a program piles up, by the line that allocates it: a leak, although tensors of the program own it.

A step ends with each call of an optimizer's step(), and with each torch.openreg.sanitizer.mark(). After some of the
steps (2, 3, 4, 6, 8, 12, ...) the blocks in use are counted, and the nodes of autograd that their tensors keep. A line
leaks if it has more blocks or nodes after each of these steps than after the one before, and at least one more for each
step. One block of at most 512 bytes a step, without nodes, is no leak: it is a number that the program keeps on the
device, such as a detached loss.

A loop without an optimizer has no steps. There, a line leaks if it allocates memory in each of several rounds of the
loop, all of it is kept at the same time, and nothing uses it after its round (GrowthCheck.h in csrc/simulator). What
the program uses again is a result or a cache, and parameters and buffers of modules do not count. A number that the
program keeps in each round is no leak either, unless it keeps nodes of autograd.

A line leaks also if its tensors are in several reference cycles at the end, which only Python's collector frees: the
program has dropped each of them and the device has not got its memory back. Tensors of one cycle are no leak (it may be
a trainer and its model), and neither are parameters.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch.autograd.graph import Node
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_openreg import _C
from torch_openreg._identity import device_type
from torch_openreg.openreg import memory
from torch_openreg.simulator import _bindings

LEAST = 4  # how many counts, or cycles, there must be
SMALL = 512  # bytes a step
NUMBER = 64  # bytes a round

_FOLDERS = (os.path.dirname(torch.__file__) + os.sep, os.path.dirname(os.path.dirname(__file__)) + os.sep, "<frozen")


class Growing(NamedTuple):
    """A line whose memory grows. ``site``: as in sanitizer.Access. ``place``: the device, or "the host"."""

    place: str
    site: str
    what: str  # is counted: "blocks", "nodes of autograd", "reference cycles", or "idle blocks"
    steps: tuple[int, ...]  # empty for cycles; the number of rounds for idle blocks
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
        self._cycles: list[Growing] = []
        self._idle: list[Growing] = []
        # The collector frees what cycles hold before anybody sees it. It runs a tenth as often.
        self._threshold, *others = gc.get_threshold()
        gc.set_threshold(10 * self._threshold, *others)

    def close(self) -> None:
        self._hook.remove()
        gc.set_threshold(self._threshold, *gc.get_threshold()[1:])

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
        for address, line, size in _blocks():
            lines[address] = line
            count.blocks[line] += 1
            count.bytes[line] += size
        count.nodes.update({line: len(nodes) for line, nodes in _nodes(lines).items()})
        self._counts.append(count)

    def look_for_cycles(self) -> None:
        """Looks at what the program has dropped and the collector has not freed. Collects garbage."""
        garbage = list(_garbage())  # first, because a snapshot makes so many objects that the collector runs
        blocks = {address: (line, size) for address, line, size in _blocks()}
        cycles: defaultdict[Line, set[int]] = defaultdict(set)
        sizes: Counter[Line] = Counter()
        for value, cycle in garbage:
            if type(value) is torch.Tensor and (block := blocks.pop(torch._C._data_address(value), None)):  # type: ignore[attr-defined]
                line, size = block
                cycles[line].add(cycle)
                sizes[line] += size
        for line, each in cycles.items():
            if len(each) >= LEAST and sizes[line] > SMALL * len(each):
                self._cycles.append(Growing(*line, "reference cycles", (), (len(each),), sizes[line]))

    def look_for_idle_memory(self) -> None:
        """Looks at what has piled up in the rounds of loops."""
        growing = []
        for device, site, rounds, blocks, size in _bindings._sanitizer_growing({*_owned()}):
            if site and not site.startswith(_FOLDERS):
                place = "the host" if device < 0 else f"{device_type}:{device}"
                growing.append(Growing(place, site, "idle blocks", (rounds,), (blocks,), size))
        numbers = any(each.bytes <= NUMBER * each.steps[0] for each in growing)
        nodes = _nodes({address: line for address, line, _ in _blocks()}) if numbers else {}
        for each in growing:
            (rounds,) = each.steps
            if each.bytes > NUMBER * rounds or len(nodes.get(each[:2], ())) >= rounds:
                self._idle.append(each)

    def found(self) -> Iterator[Growing]:
        """One row for each line: what grows with the steps says most."""
        rows: dict[Line, Growing] = {}
        for row in (*self._cycles, *self._grown(), *self._idle):
            rows.setdefault(row[:2], row)
        yield from rows.values()

    def _grown(self) -> Iterator[Growing]:
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


def _owned() -> Iterator[int]:
    """The addresses of the parameters and buffers of all modules."""
    for value in gc.get_objects():
        tensors: Iterable[torch.Tensor | None] = ()
        if issubclass(type(value), torch.nn.Parameter):
            tensors = (value,)
        elif issubclass(type(value), torch.nn.Module):
            tensors = value.__dict__.get("_buffers", {}).values()
        for tensor in tensors:
            with contextlib.suppress(RuntimeError, TypeError):  # it has no memory
                yield torch._C._data_address(tensor)  # type: ignore[attr-defined]


def _garbage() -> Iterator[tuple[object, int]]:
    """The objects that the program cannot reach, each with the number of its group: those that refer to each other."""
    debug = gc.get_debug()
    gc.set_debug(debug | gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(debug)
    left = {id(value): value for value in gc.garbage}
    gc.garbage.clear()
    refers: defaultdict[int, list[int]] = defaultdict(list)  # in both directions
    for number, value in left.items():
        for other in gc.get_referents(value):
            if id(other) in left:
                refers[number].append(id(other))
                refers[id(other)].append(number)
    while left:
        cycle = next(iter(left))
        waiting = [cycle]
        while waiting:
            number = waiting.pop()
            if number in left:
                yield left.pop(number), cycle
                waiting += refers[number]


def _blocks() -> Iterator[tuple[int, Line, int]]:
    """The address, the line and the size in bytes of each block in use."""
    for segment in memory.memory_snapshot():
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                line = f"{device_type}:{segment['device']}", _site(block.get("frames", []))
                yield block["address"], line, block["requested_size"]
    for block in _C._recorded_pinned_memory():
        yield block["address"], ("the host", _site(block.get("frames", []))), block["requested_size"]


def _site(frames: list[dict[str, Any]]) -> str:
    for frame in frames:
        if not frame["filename"].startswith(_FOLDERS):
            return f"{frame['filename']}:{frame['line']} in {frame['name']}"
    return ""
