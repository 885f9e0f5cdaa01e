"""The first allocation of device memory that failed in this process, also if the program caught the error."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from torch_openreg.openreg import memory
from torch_openreg.simulator.check._own import is_own

_first: dict[str, Any] | None = None


def watch() -> None:
    """Looks for allocations that fail from now on."""
    memory._attach_out_of_memory_observer(_note)


def take_first() -> dict[str, Any] | None:
    """The first allocation that failed since the last call, with ``line``, ``device``, ``size``, ``total``, ``free``.

    Sizes are in bytes. None if no allocation failed.
    """
    global _first
    first, _first = _first, None
    return first


def _note(device: int, size: int, total: int, free: int) -> None:
    global _first
    if _first is None:
        _first = {"line": _place(sys._getframe(1)), "device": device, "size": size, "total": total, "free": free}


def _place(frame: FrameType | None) -> str:
    """The innermost line of the program, or else of anything, as ``"train.py:12 in step"``."""
    place = ""
    while frame:
        code = frame.f_code
        line = f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        if is_own(code.co_filename):
            return line
        place, frame = place or line, frame.f_back
    return place
