"""Converts sizes of memory as people write them. ``_faults`` uses this module; neither module needs torch."""

from __future__ import annotations

import re

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def byte_count(text: str) -> int | None:
    """Converts a text such as ``"64M"`` to bytes. Returns None for any other text.

    The suffix is K, M or G (powers of 1024), or there is none.
    """
    found = re.fullmatch(r"(\d+)([KMG]?)", text)
    return int(found[1]) * _UNITS[found[2]] if found else None
