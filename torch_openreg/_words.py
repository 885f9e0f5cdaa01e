"""How reports say a size and a count."""

from __future__ import annotations


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
