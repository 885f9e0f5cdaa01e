"""The policy and the counts for operators that take the fallback.

The fallback runs the CPU's kernel in place on device memory. The results are the same, and the call is slower than a
call of a kernel that is registered for the device. Most operators that PyTorch composes of others do not take the
fallback themselves. The example refuses the fallback to all but a few operators, and prints which operators took it::

    with torch.openreg.fallback.set_policy("error", allow=["aten::sort.stable", "_foreach_*"]):
        model(x)
    print(torch.openreg.fallback.table())

The policy belongs to the process, as that of ``torch.cuda.set_sync_debug_mode`` does, because a backward may run on
other threads. ``TORCH_OPENREG_FALLBACK=error,aten::sort.stable,_foreach_*`` sets the policy from the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from torch_openreg import _C

__all__ = ["Policy", "counts", "get_policy", "reset_counts", "set_policy", "table"]

_MODES = ("silent", "warn", "error")  # in the order of C++'s FallbackMode


class Policy(NamedTuple):
    """The reaction to an operator that takes the fallback: ``mode``, and silence for the operators of ``allow``."""

    mode: str
    allow: tuple[str, ...]


def get_policy() -> Policy:
    """The policy of this process now. Does not synchronise."""
    mode, allow = _C._fallback_policy()
    return Policy(_MODES[mode], tuple(allow))


class set_policy:
    """Sets the policy. As a context manager, it restores the previous policy at the end of the block.

    ``mode`` is ``"silent"`` (the policy at the start), ``"warn"`` (a UserWarning at the first call of each operator
    after ``set_policy``) or ``"error"`` (NotImplementedError, which names the operator and how to allow it). Operators
    of ``allow`` (default: none) stay silent. ``allow`` has names with or without namespace and overload, and shell
    patterns (``"aten::sort.stable"``, ``"sort"``, ``"_foreach_*"``). Raises ValueError for another mode, and TypeError
    if ``allow`` is one string instead of a list. Does not synchronise.
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
    """The number of calls of each operator that took the fallback, by ``"aten::name.overload"``.

    The operator with the most calls is first. The calls of all threads count, from the start of the
    process or from the last ``reset_counts``. Refused calls do not count. Does not synchronise.
    """
    return dict(sorted(_C._fallback_counts(), key=lambda item: (-item[1], item[0])))


def reset_counts() -> None:
    """Sets all counts to 0. Does not synchronise."""
    _C._reset_fallback_counts()


def table() -> str:
    """``counts()`` as text, with a line for each operator."""
    rows = counts()
    if not rows:
        return "No operator fell back."
    width = max(len("operator"), *map(len, rows))
    lines = [f"{'operator':<{width}}  {'calls':>9}", *(f"{name:<{width}}  {n:>9}" for name, n in rows.items())]
    return "\n".join(lines)


def _apply_environment() -> None:
    mode, *allow = (part.strip() for part in (os.environ.get("TORCH_OPENREG_FALLBACK") or "silent").split(","))
    set_policy(mode, allow)


_apply_environment()
