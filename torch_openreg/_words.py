"""How reports say a size and a count, and how they align a table."""

from __future__ import annotations

from collections.abc import Sequence


def size(count: float) -> str:
    """A size for readers: 1234567 is "1.2 MB"."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def plural(count: int, what: str, several: str = "") -> str:
    """``plural(2, "kernel")`` is "2 kernels". ``several``: the word for more than one, if it does not end in "s"."""
    return f"{count} {what if count == 1 else several or what + 's'}"


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """A line for each row, with its cells below those of the row before."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
