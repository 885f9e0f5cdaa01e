"""Ranges and marks that a profiler shows, as ``torch.cuda.nvtx``.

A range is a ``torch.profiler.record_function``. A profiler draws the range on the thread that entered it. On each
stream of the device, the profiler draws the range from its first kernel to its last kernel. Without a profiler, ranges
and marks have no effect. No function of this module waits.
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
    """Begins a range named ``msg`` within the calling thread's innermost range. Returns its depth, from 0.

    As ``torch.cuda.nvtx.range_push``.
    """
    _open.ranges.append(_begin(msg))
    return len(_open.ranges) - 1


def range_pop() -> int:
    """Ends the calling thread's innermost range. Returns the depth of that range, or -1 if there is none.

    As ``torch.cuda.nvtx.range_pop``.
    """
    if not _open.ranges:
        return -1
    _open.ranges.pop().__exit__(None, None, None)
    return len(_open.ranges)


def range_start(msg: str) -> int:
    """Begins a range named ``msg`` that need not nest with other ranges. Returns its handle for ``range_end``.

    As ``torch.cuda.nvtx.range_start``.
    """
    handle = next(_handles)
    _started[handle] = _begin(msg)
    return handle


def range_end(range_id: int) -> None:
    """Ends the range with the handle ``range_id``, which ``range_start`` returned. Another number is ignored.

    As ``torch.cuda.nvtx.range_end``.
    """
    if found := _started.pop(range_id, None):
        found.__exit__(None, None, None)


def mark(msg: str) -> None:
    """Marks one point in time with the name ``msg``. As ``torch.cuda.nvtx.mark``."""
    _begin(msg).__exit__(None, None, None)


@contextlib.contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Context manager and decorator for a range. Its name is ``msg``, formatted with ``args`` and ``kwargs``.

    As ``torch.cuda.nvtx.range``.
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()


def _begin(msg: str) -> torch.profiler.record_function:
    return torch.profiler.record_function(msg).__enter__()
