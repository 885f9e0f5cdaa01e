"""The changes that ``torch-openreg dry --try`` makes to a program, without an edit.

Importing this module needs no torch, so the command can check the names.
"""

from __future__ import annotations

# Name -> what a program must have, or else the change does not apply.
CHANGES = {
    "checkpoint": "no module with repeated blocks was called: a container with two modules of one type that have modules",
    "fused=True": "no optimizer that can be fused made a step, or the program chose fused or foreach itself",
    "foreach=False": "no optimizer that has foreach made a step, or the program chose fused or foreach itself",
    "reshard_after_forward=False": "no module of FSDP2 was called",
    "expandable_segments": "the program did not fit, so what it would have allocated later is not known",
}
COMPUTED = "expandable_segments"  # the program is not run again: its allocations are the same (_expandable.py)


def checked(name: str) -> str:
    """The name itself. Raises ValueError if it names no change."""
    if name not in CHANGES:
        raise ValueError(f"{name!r} is no change. Choose from {', '.join(CHANGES)}.")
    return name
