"""Sizes of memory as people write them. A module without torch, because faults are read before torch is loaded."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int | None:
    """The bytes that a text such as ``"64M"`` means, with the suffix K, M, G or none; None for another text."""
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found[1]) * _UNITS[found[2]] if found else None
