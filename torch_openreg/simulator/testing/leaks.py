"""Finds device and pinned memory that a test still holds at its end, and changes of the current device or streams.

The description of a leak names the line that allocated the memory.
"""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from torch_openreg import _C, openreg
from torch_openreg._identity import device_type
from torch_openreg.openreg import memory

_TORCH = os.path.dirname(torch.__file__) + os.sep

_EXCUSED = pytest.StashKey[bool]()


@dataclass(frozen=True)
class _State:
    blocks: dict[tuple[str, int], dict[str, Any]]  # the key: the device or "pinned memory", and the address
    current: tuple[Any, ...]  # the current device, and each device's current stream


def _blocks() -> dict[tuple[str, int], dict[str, Any]]:
    on_devices = {
        (f"{device_type}:{segment['device']}", block["address"]): block
        for segment in memory.memory_snapshot()
        for block in segment["blocks"]
        if block["state"] == "active_allocated"
    }
    return on_devices | {("pinned memory", block["address"]): block for block in _C._recorded_pinned_memory()}


def _state() -> _State:
    streams = tuple(torch.accelerator.current_stream(index) for index in range(openreg.device_count()))
    return _State(_blocks(), (openreg.current_device(), *streams))


def _wait() -> None:
    """Waits for the devices. A queued copy keeps its pinned memory until it has run."""
    with contextlib.suppress(RuntimeError):  # the device may be lost
        for index in range(openreg.device_count()):
            torch.accelerator.synchronize(index)


def _line(frames: list[dict[str, Any]]) -> str:
    """The innermost line that is not part of PyTorch."""
    for frame in frames:
        if not frame["filename"].startswith(_TORCH):
            return f"{frame['filename']}:{frame['line']} in {frame['name']}"
    return "an unknown line"


class Leaks:
    """Compares the state before each test with the state after it."""

    def __init__(self) -> None:
        self._before: _State | None = None
        self._kept: set[tuple[str, int]] = set()

    def begin(self) -> None:
        """Called before a test's fixtures are made. Starts the device."""
        openreg.init()
        memory._record_memory_history("state", context="state", stacks="python")
        self._kept.clear()
        self._before = _state()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Memory that is allocated in this `with` block belongs to a fixture that outlives the test, and is no leak."""
        before = _blocks()
        try:
            yield
        finally:
            self._kept |= _blocks().keys() - before.keys()

    def excuse(self, item: pytest.Item) -> None:
        """Called for a test that has failed already: memory that the test keeps is no leak."""
        item.stash[_EXCUSED] = True

    def end(self, item: pytest.Item) -> str:
        """Describes what differs from the state before the test; "" if nothing differs."""
        before, self._before = self._before, None
        if before is None or item.stash.get(_EXCUSED, False):
            return ""
        if funcargs := getattr(item, "funcargs", None):
            funcargs.clear()  # pytest itself does this next
        if not self._left(before):
            return ""
        gc.collect()
        _wait()
        left = self._left(before)
        return f"{item.name} leaves something behind.\n" + "\n".join(left) if left else ""

    def _left(self, before: _State) -> list[str]:
        after = _state()
        left = []
        for place in sorted(after.blocks.keys() - before.blocks.keys() - self._kept):
            block = after.blocks[place]
            size = block["requested_size"]
            left.append(f"{place[0]}: {size:,} bytes, allocated at {_line(block.get('frames', []))}")
        if after.current != before.current:
            left.append(f"the current device and streams are {after.current} and were {before.current}")
        return left
