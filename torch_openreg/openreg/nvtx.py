"""Ranges and marks for a profiler to show, as ``torch.cuda.nvtx``.

They are ``torch.profiler.record_function``: a profiler draws a range on the thread that entered it and, from its first
kernel to its last, on each stream of the device. Without a profiler nothing comes of them.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _Open(threading.local):
    def __init__(self) -> None:
        self.ranges: list[torch.profiler.record_function] = []


_open = _Open()
_started: dict[int, torch.profiler.record_function] = {}
_handles = itertools.count(1)


def range_push(msg: str) -> int:
    """Begins a range named ``msg`` within the calling thread's innermost one; returns its depth, from 0.

    As ``torch.cuda.nvtx.range_push``.
    """
    _open.ranges.append(_begin(msg))
    return len(_open.ranges) - 1


def range_pop() -> int:
    """Ends the calling thread's innermost range; returns its depth, or -1 if there is none.

    As ``torch.cuda.nvtx.range_pop``.
    """
    if not _open.ranges:
        return -1
    _open.ranges.pop().__exit__(None, None, None)
    return len(_open.ranges)


def range_start(msg: str) -> int:
    """Begins a range named ``msg`` that need not nest with others; returns its handle, for ``range_end``.

    As ``torch.cuda.nvtx.range_start``.
    """
    handle = next(_handles)
    _started[handle] = _begin(msg)
    return handle


def range_end(range_id: int) -> None:
    """Ends the range whose handle ``range_start`` returned as ``range_id``; any other number is ignored.

    As ``torch.cuda.nvtx.range_end``.
    """
    if found := _started.pop(range_id, None):
        found.__exit__(None, None, None)


def mark(msg: str) -> None:
    """A range named ``msg`` without a length. As ``torch.cuda.nvtx.mark``."""
    _begin(msg).__exit__(None, None, None)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager and decorator: a range whose name is ``msg``, formatted with the other arguments.

    As ``torch.cuda.nvtx.range``.
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _begin(msg: str) -> torch.profiler.record_function:
    return torch.profiler.record_function(msg).__enter__()
