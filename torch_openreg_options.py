"""The settings that are options of ``torch-openreg run`` and of the pytest plugin: each sets one environment variable.

A module of its own that imports nothing: to import torch_openreg is to import torch, which reads some of the variables.
"""

from __future__ import annotations

from collections.abc import Callable

OPTIONS: tuple[tuple[str, str, tuple[str, ...] | range, str], ...] = (
    # (name, environment variable, allowed values, help)
    ("as", "TORCH_OPENREG_AS", ("cuda", "openreg"), "the type of the simulated devices (default: openreg)"),
    ("device-count", "OPENREG_DEVICE_COUNT", range(1, 65), "the number of simulated devices (default: 2)"),
    ("execution", "OPENREG_EXECUTION", ("inline", "async", "chaos"), "when queued operators run (default: inline)"),
    ("seed", "OPENREG_CHAOS_SEED", range(2**64), "what the delays of the mode chaos follow from (default: 0)"),
)


def metavar(allowed: tuple[str, ...] | range) -> str:
    """How the help shows the allowed values."""
    return "N" if isinstance(allowed, range) else "|".join(allowed)


def reader(allowed: tuple[str, ...] | range) -> Callable[[str], str]:
    """The ``type`` of an option with argparse: it returns the text, or raises with what is allowed."""

    def read(text: str) -> str:
        if isinstance(allowed, range):
            if text.isascii() and text.isdigit() and int(text) in allowed:
                return text
            expected = f"a number from {allowed[0]} to {allowed[-1]}"
        else:
            if text in allowed:
                return text
            expected = " or ".join(allowed)
        from argparse import ArgumentTypeError

        raise ArgumentTypeError(f"it is {text!r}, but must be {expected}")

    return read
