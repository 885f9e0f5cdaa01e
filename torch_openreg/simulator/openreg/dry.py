"""Dry execution: a program allocates as always, and large tensors are not computed.

::

    torch.openreg.dry.start()  # or OPENREG_DRY=1M before `import torch`

A device may then be larger than the host's memory: a kernel that reads a large tensor is skipped, and its results get
memory that nobody touches. Small tensors, and integers that come from the host, have real values. A small result of a
skipped kernel is zeros; such a value is *assumed*, and so is what is computed from it. ``python -m torch_openreg dry``
runs a program in this way and says whether it fits."""

from __future__ import annotations

import os
from typing import NamedTuple

from torch_openreg.simulator import _bindings as _C
from torch_openreg.simulator._sizes import byte_count

__all__ = ["AssumedRead", "assumed_reads", "start"]


class AssumedRead(NamedTuple):
    """A place where the program got values that nobody computed."""

    line: str
    """The line of Python, as ``"/home/me/train.py:12 in step"``."""
    how: str
    """``"item()"``, ``"equal()"`` or ``"a copy to the host"``. ``"random numbers of a large CPU tensor"``: they are zeros."""
    count: int  # type: ignore[assignment]
    """How often. It hides the method of tuples."""


def start(limit: int = 1 << 20) -> None:
    """Starts dry execution of all devices of this process, until the process ends.

    Tensors of more than ``limit`` bytes are not computed. To be called before large tensors are made. Raises
    RuntimeError if dry execution has started already, and ValueError if ``limit`` is 0. Does not synchronise.
    """
    _C._dry_start(limit)
    _C._record_launch_sites(True)  # type: ignore[attr-defined]


def assumed_reads() -> list[AssumedRead]:
    """Where the program has read values that nobody computed, the most frequent places first."""
    return sorted((AssumedRead(*row) for row in _C._dry_reads()), key=lambda each: -each.count)


if _limit := os.environ.get("OPENREG_DRY", "").strip():
    start(byte_count(_limit) or 0)
