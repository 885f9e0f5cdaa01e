"""``torch-openreg memory FILE.pickle``: explains a snapshot of device memory, in words or as a page.

``torch.openreg.memory._dump_snapshot`` wrote the file, or ``torch.cuda.memory._dump_snapshot`` on CUDA. To have a
history in the file, call ``_record_memory_history()`` first.
"""

from __future__ import annotations

import argparse
import io
import os
import pickle
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from torch_openreg import _page
from torch_openreg._words import plural, size

MB = 1e6
COLUMNS = 400  # the number of points in time that each picture shows
SERIES = 9  # the number of groups that each picture shows; the group OTHER has the rest of the memory

# Part of a file's path, name of a function ("": any) -> the purpose of the memory. A row matches if any frame of the
# allocation's stack matches. The first row that matches is used.
CATEGORIES = (
    ("torch/optim/", "", "optimizer state"),
    ("torch/autograd/", "", "backward: gradients"),
    ("torch/nn/modules/module.py", "_call_impl", "forward: activations"),
    ("torch/nn/modules/module.py", "_apply", "parameters and buffers"),
    ("torch/nn/", "__init__", "parameters and buffers"),
)
OTHER = "other"
BEFORE = "allocated before the history began"

# The actions of the history in which the allocator gets memory from the device, and in which it gives memory back.
# CUDA's expandable segments are mapped and unmapped in parts.
GROWTH = ("segment_alloc", "segment_map")
SHRINKAGE = ("segment_free", "segment_unmap")


class Block(NamedTuple):
    """Memory that was in use for a while. ``begin`` and ``end`` are indices of the history's entries."""

    address: int
    size: int
    begin: int
    end: int
    frames: list[dict[str, Any]]
    is_old: bool
    """Whether the memory was allocated before the history began."""

    @property
    def category(self) -> str:
        """The purpose of the memory: the stack of the allocation decides."""
        if self.is_old:
            return BEFORE
        for path, function, category in CATEGORIES:
            if any(path in each["filename"] and function in ("", each["name"]) for each in self.frames):
                return category
        return OTHER

    @property
    def line(self) -> str:
        """The line of Python that allocated the memory, as text; BEFORE if the history does not have the allocation."""
        return BEFORE if self.is_old else line_of(self.frames)


def line_of(frames: list[dict[str, Any]]) -> str:
    """The innermost line of Python that is not part of PyTorch, as text; a text that says so if there is none."""
    for frame in frames:
        if "/torch/" not in frame["filename"] and frame["filename"].endswith((".py", ">")):
            return f"{os.path.basename(frame['filename'])}:{frame['line']} {frame['name']}"
    return "no line of Python"


def _without(segments: dict[int, int], begin: int, end: int) -> dict[int, int]:
    """The segments (address -> size) without the addresses from ``begin`` to ``end``."""
    rest = {}
    for address, length in segments.items():
        for first, last in ((address, min(begin, address + length)), (max(end, address), address + length)):
            if first < last:
                rest[first] = last - first
    return rest


class Device:
    """The memory of one device: its segments at the time of the snapshot, and their history."""

    def __init__(self, index: int, snapshot: dict[str, Any]) -> None:
        self.index = index
        self.segments = [each for each in snapshot["segments"] if each["device"] == index]
        traces = snapshot["device_traces"]
        self.history = traces[index] if index < len(traces) else []
        self.blocks = self._blocks()
        self.allocated = self._totals([(block.begin, block.end, block.size) for block in self.blocks])
        self.reserved = self._reserved()
        self.peak = max(range(len(self.allocated)), key=self.allocated.__getitem__, default=0)

    def _blocks(self) -> list[Block]:
        open_blocks: dict[int, tuple[int, dict[str, Any]]] = {}
        blocks = []
        last = len(self.history)
        for at, entry in enumerate(self.history):
            if entry["action"] == "alloc":
                open_blocks[entry["addr"]] = (at, entry)
            elif entry["action"] == "free_completed":
                address = entry["addr"]
                begin, origin = open_blocks.pop(address, (0, entry))
                is_old = origin is entry
                blocks.append(Block(address, entry["size"], begin, at, origin.get("frames", []), is_old))
        for address, (begin, entry) in open_blocks.items():
            blocks.append(Block(address, entry["size"], begin, last, entry.get("frames", []), False))
        for segment in self.segments:
            for each in segment["blocks"]:
                if each["state"] != "inactive" and each["address"] not in open_blocks:
                    size = each.get("requested_size", each["size"])
                    blocks.append(Block(each["address"], size, 0, last, each.get("frames", []), True))
        return blocks

    def _totals(self, spans: list[tuple[int, int, int]]) -> list[int]:
        changes = [0] * (len(self.history) + 1)
        for begin, end, length in spans:
            changes[begin] += length
            changes[end] -= length
        totals, total = [], 0
        for change in changes[: max(len(self.history), 1)]:
            total += change
            totals.append(total)
        return totals

    def _reserved(self) -> list[int]:
        """The bytes of all segments after each entry, computed backwards from the last entry."""
        total = sum(segment["total_size"] for segment in self.segments)
        totals = []
        for entry in reversed(self.history):
            totals.append(total)
            total -= entry["size"] * ((entry["action"] in GROWTH) - (entry["action"] in SHRINKAGE))
        return totals[::-1] or [total]

    def unused_segments(self, at: int) -> int:
        """The bytes of the segments in which nothing was in use after entry number ``at``."""
        segments = {segment["address"]: segment["total_size"] for segment in self.segments}
        for entry in reversed(self.history[at + 1 :]):
            if entry["action"] in GROWTH:
                segments = _without(segments, entry["addr"], entry["addr"] + entry["size"])
            elif entry["action"] in SHRINKAGE:
                segments[entry["addr"]] = entry["size"]
        starts = sorted(segments)
        for block in self.alive(at):
            index = bisect_right(starts, block.address) - 1
            if index >= 0:
                segments.pop(starts[index], None)
        return sum(segments.values())

    def failures(self) -> dict[tuple[int, str], tuple[int, int]]:
        """Allocations that failed, by size and line: their number, and the device's free memory at the last failure."""
        found: dict[tuple[int, str], tuple[int, int]] = {}
        for entry in self.history:
            if entry["action"] == "oom":
                key = entry["size"], line_of(entry.get("frames", []))
                found[key] = found.get(key, (0, 0))[0] + 1, entry["device_free"]
        return found

    def alive(self, at: int) -> list[Block]:
        """The blocks in use after entry number ``at``, the largest first."""
        found = [block for block in self.blocks if block.begin <= at < block.end]
        return sorted(found, key=lambda block: -block.size)

    def columns(self) -> list[int]:
        """The entries that the pictures show: in each of COLUMNS parts of the history, the entry with most memory."""
        count = len(self.allocated)
        edges = sorted({round(i * count / COLUMNS) for i in range(COLUMNS + 1)})
        return [max(range(first, last), key=self.allocated.__getitem__) for first, last in pairwise(edges)]


def group(blocks: Sequence[Block], key: Callable[[Block], str]) -> dict[str, int]:
    """The bytes of each group of blocks, the largest first."""
    sizes: dict[str, int] = defaultdict(int)
    for block in blocks:
        sizes[key(block)] += block.size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


def holes(segment: dict[str, Any]) -> list[int]:
    """The sizes of the free parts of a segment; [] if nothing uses the segment, because it can then be given back."""
    free = [block["size"] for block in segment["blocks"] if block["state"] == "inactive"]
    return free if len(free) < len(segment["blocks"]) else []


def pool_of(segment: dict[str, Any]) -> str:
    """The pool of a graph or of a ``MemPool`` to which the segment belongs; "" if it belongs to none."""
    pool = tuple(segment.get("segment_pool_id", (0, 0)))
    return "" if pool == (0, 0) else f"the pool {pool}{' of graphs' if pool[0] else ''}"


def describe_pools(device: Device) -> list[str]:
    pools: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for segment in device.segments:
        pools[pool_of(segment)].append(segment)
    return [
        f"T{name[1:]} has {plural(len(segments), 'segment')} of {size(sum(each['total_size'] for each in segments))}: "
        f"{size(sum(each['active_size'] for each in segments))} are in use, and no other tensor gets the rest until the "
        "pool is gone."
        for name, segments in sorted(pools.items())
        if name
    ]


def describe(device: Device) -> list[str]:
    """The device's memory in sentences."""
    reserved = sum(segment["total_size"] for segment in device.segments)
    used = sum(segment["active_size"] for segment in device.segments)
    free = [part for segment in device.segments for part in holes(segment)]
    empty = reserved - used - sum(free)
    lines = [
        f"At the end the allocator holds {plural(len(device.segments), 'segment')} of {size(reserved)}: {size(used)} "
        f"are in use, {size(empty)} are in segments that nothing uses, which empty_cache() gives back, and "
        f"{size(sum(free))} are fragmented: {plural(len(free), 'hole')} in segments in use, the largest of "
        f"{size(max(free, default=0))}.",
        *describe_pools(device),
    ]
    if not device.history:
        return [*lines, "There is no history: call torch.openreg.memory._record_memory_history() before the program."]
    at = device.peak
    allocated, held = device.allocated[at], device.reserved[at]
    alive = device.alive(at)
    entry = device.history[at]
    lines.append(
        f"The peak was {size(allocated)} in {plural(len(alive), 'allocation')}, after entry {at + 1} of the "
        f"{len(device.history)} of the history ({entry['action']}, {size(entry['size'])})."
    )
    kinds = ", ".join(f"{name} {size(total)}" for name, total in group(alive, lambda block: block.category).items())
    lines.append(f"Alive then: {kinds}.")
    unused = device.unused_segments(at)
    lines.append(
        f"The allocator held {size(held)} at that moment, {size(held - allocated)} more than was asked for: "
        f"{size(unused)} in segments that nothing used, and {size(held - allocated - unused)} "
        f"({100 * (held - allocated - unused) / held if held else 0:.0f} %) that rounding and fragmentation cost."
    )
    for (asked, line), (count, free_memory) in device.failures().items():
        times = "" if count == 1 else f" {count} times, the last time"
        lines.append(
            f"An allocation of {size(asked)} failed{times} with {size(free_memory)} free on the device: {line}."
        )
    return lines


def by_line(device: Device) -> list[tuple[str, int]]:
    """The lines of Python that allocated the memory in use at the peak, with the bytes."""
    return list(group(device.alive(device.peak), lambda block: block.line).items())


def _series(device: Device, key: Callable[[Block], str], steps: list[int]) -> list[tuple[str, list[float]]]:
    """The memory in use at each step, in MB, for the groups that are largest at the peak."""
    names = list(group(device.alive(device.peak), key))[:SERIES]
    totals = {name: [0.0] * len(steps) for name in [*names, OTHER]}
    spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
    for block in device.blocks:
        name = key(block)
        spans[name if name in names else OTHER].append((block.begin, block.end, block.size))
    for name, each in spans.items():
        all_totals = device._totals(each)
        totals[name] = [all_totals[step] / MB for step in steps]
    return [(name, values) for name, values in totals.items() if any(values) or name in names]


def _segments(device: Device) -> str:
    """The 40 largest segments as HTML: each is a bar of its blocks."""
    bars = []
    for segment in sorted(device.segments, key=lambda each: -each["total_size"])[:40]:
        total = segment["total_size"]
        parts, at = [], 0
        for block in segment["blocks"]:
            state = block["state"]
            words = f"{'free' if state == 'inactive' else state}, {size(block['size'])}"
            if frames := block.get("frames"):
                words += f", {line_of(frames)}"
            left, width = 1000 * at / total, max(1000 * block["size"] / total, 0.5)
            parts.append(
                f'<rect x="{left:.2f}" y="0" width="{width:.2f}" height="18" class="{escape(state)}">'
                f"<title>{escape(words)}</title></rect>"
            )
            at += block["size"]
        free = sum(holes(segment))
        words = ", ".join(
            part
            for part in (
                f"{size(total)} of stream {segment['stream']}",
                pool_of(segment),
                f"{size(segment['active_size'])} in use",
                f"{size(free)} in holes" if free else "",
            )
            if part
        )
        bars.append(
            f'<p>{escape(words)}</p><svg class="bar" viewBox="0 0 1000 18" preserveAspectRatio="none" role="img" '
            f'aria-label="{escape(words)}">{"".join(parts)}</svg>'
        )
    hidden = len(device.segments) - len(bars)
    return "".join(bars) + (f"<p>{hidden} smaller segments are not shown.</p>" if hidden > 0 else "")


STYLE = """.active_allocated { fill: hsl(210 60% 50%); } .active_awaiting_free { fill: hsl(35 80% 50%); }
.active_pending_free { fill: hsl(35 80% 50%); } .inactive { fill: var(--soft); }
rect { stroke: canvas; stroke-width: .3; }
p:has(+ .bar) { margin-bottom: .2rem; }
svg.bar { height: 1.1rem; min-width: 0; }
"""


VIEWS: dict[str, Callable[[Block], str]] = {
    "category": lambda block: block.category,
    "line of Python": lambda block: block.line,
}


def course(device: Device, view: str) -> str:
    """The memory in use over time as a picture, and the memory in use at the peak as a table, as HTML.

    ``view``, one of VIEWS, says how memory is grouped.
    """
    key, steps = VIEWS[view], device.columns()
    mark = [(next(i for i, step in enumerate(steps) if step >= device.peak), "peak")]
    held = (max(device.reserved) / MB, "most that the allocator held")
    series = _series(device, key, steps)
    label = f"Memory of device {device.index} by {view}"
    alive = group(device.alive(device.peak), key)
    known = [name for name, _ in series]
    rest = sum(total for name, total in alive.items() if name not in known)
    rows = [(name, size(alive.get(name, 0) + (rest if name == OTHER else 0))) for name in known]
    return _page.stacked_areas(series, label=label, unit="MB", marks=mark, limit=held) + _page.table(
        (view, "at the peak"), rows, coloured=True
    )


def page(devices: Sequence[Device], more: str = "") -> str:
    """The page, which needs no other file. ``more`` is HTML that it ends with."""
    body = []
    for device in devices:
        body.append(f"<h2>Device {device.index}</h2>")
        body += [f"<p>{escape(line)}</p>" for line in describe(device)]
        if device.history:
            for view in VIEWS:
                body.append(f"<h3>Memory in use by {view}, over the {len(device.history)} entries of the history</h3>")
                body.append(course(device, view))
        body.append("<h3>Segments and their holes at the end</h3>")
        body.append(_segments(device) or "<p>None.</p>")
    return _page.page("Device memory", "\n".join([*body, more]), style=STYLE)


class _Unpickler(pickle.Unpickler):
    """Reads a snapshot, which has only numbers, strings and containers. Raises if a file names a class or function."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"the file names {module}.{name}, and no snapshot names a class or function")


def load(file: Path) -> list[Device]:
    """The devices of a snapshot that have memory or a history. A snapshot that was made leaves an entry in it."""
    snapshot = _Unpickler(io.BytesIO(file.read_bytes())).load()
    indices = {segment["device"] for segment in snapshot["segments"]}
    indices |= {
        index for index, trace in enumerate(snapshot["device_traces"]) if any(e["action"] != "snapshot" for e in trace)
    }
    return [Device(index, snapshot) for index in sorted(indices)]


# What Python's unpickler raises for files that are no pickle, and this module for pickles that are no snapshot.
_NO_PICKLE = (
    *(pickle.UnpicklingError, EOFError, AttributeError, LookupError, TypeError, ValueError, OverflowError, MemoryError),
)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="torch-openreg memory", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="what torch.openreg.memory._dump_snapshot() wrote")
    parser.add_argument("--html", action="store_true", help="print an HTML page in one file")
    arguments = parser.parse_args(argv)
    try:
        devices = load(arguments.file)
    except (OSError, *_NO_PICKLE) as error:
        print(f"torch-openreg memory: cannot read {arguments.file} as a snapshot: {error!r}", file=sys.stderr)
        return 1
    if arguments.html:
        print(page(devices))
        return 0
    for device in devices:
        print(f"Device {device.index}")
        print("\n".join(f"  {line}" for line in describe(device)))
        if device.history:
            print("  By line of Python, at the peak:")
            for line, total in by_line(device)[:10]:
                print(f"    {size(total):>9}  {line}")
    if not devices:
        print("The snapshot has no memory of any device.")
    return 0
