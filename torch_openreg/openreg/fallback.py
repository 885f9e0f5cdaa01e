"""Operators that have no kernel of their own on the device: what becomes of a call to one, and how often it happened.

Such an operator falls back to the CPU's kernel, which runs in place on device memory, so nothing is lost but speed. To
see which ones a program uses, or to keep new ones out of it::

    with torch.openreg.fallback.set_policy("error", allow=["aten::sort.stable", "_foreach_*"]):
        model(x)
    print(torch.openreg.fallback.table())

The policy belongs to the process, as ``torch.cuda.set_sync_debug_mode``'s: a backward may run on other threads.
``TORCH_OPENREG_FALLBACK=error,aten::sort.stable,_foreach_*`` sets it from the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from torch_openreg import _C

__all__ = ["Policy", "counts", "get_policy", "reset_counts", "set_policy", "table"]

_MODES = ("silent", "warn", "error")  # in the order of C++'s FallbackMode


class Policy(NamedTuple):
    """What becomes of a call to an operator that falls back: ``mode``, except for the operators of ``allow``."""

    mode: str
    allow: tuple[str, ...]


def get_policy() -> Policy:
    """The policy now."""
    mode, allow = _C._fallback_policy()
    return Policy(_MODES[mode], tuple(allow))


class set_policy:
    """Sets the policy; as a context manager, until the end of the block.

    ``mode`` is ``"silent"`` (the default), ``"warn"`` (a UserWarning at an operator's first call after this) or
    ``"error"`` (NotImplementedError, which names the operator and how to allow it). Operators of ``allow`` stay silent:
    names with or without namespace and overload, and shell patterns (``"aten::sort.stable"``, ``"sort"``,
    ``"_foreach_*"``). ValueError for another mode, TypeError for one string where a list belongs. Does not synchronise.
    """

    def __init__(self, mode: str, allow: Iterable[str] = ()) -> None:
        if mode not in _MODES:
            raise ValueError(f"The fallback policy is one of {', '.join(map(repr, _MODES))}, but got {mode!r}.")
        if isinstance(allow, str):
            raise TypeError(f"`allow` is a list of operators; for a single one: allow=[{allow!r}]")
        previous = get_policy()
        _C._set_fallback_policy(_MODES.index(mode), list(allow))
        self._previous = previous

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc_info: object) -> None:
        _C._set_fallback_policy(_MODES.index(self._previous.mode), list(self._previous.allow))


def counts() -> dict[str, int]:
    """Calls of each operator that fell back, ``"aten::name.overload"`` to their number, the most called one first.

    Counted in all threads since the process started or ``reset_counts``, refused calls not.
    """
    return dict(sorted(_C._fallback_counts(), key=lambda item: (-item[1], item[0])))


def reset_counts() -> None:
    """All counts start again from 0."""
    _C._reset_fallback_counts()


def table() -> str:
    """``counts()`` as text, a line for each operator."""
    rows = counts()
    if not rows:
        return "No operator fell back."
    width = max(len("operator"), *map(len, rows))
    lines = [f"{'operator':<{width}}  {'calls':>9}", *(f"{name:<{width}}  {n:>9}" for name, n in rows.items())]
    return "\n".join(lines)


def _apply_environment() -> None:
    mode, *allow = os.environ.get("TORCH_OPENREG_FALLBACK", "silent").split(",")
    set_policy(mode, allow)


_apply_environment()
