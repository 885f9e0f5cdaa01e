"""Counts the answers of a GPU in tests/cuda/cuda_answers, as a table of test/cuda.md. The counts stand nowhere else.

A test proves that a program has another answer here if and only if a row of the folder different/ lists it. So the
lists give the counts, and no device is asked.
"""

from __future__ import annotations

import json
import re
import sys
from importlib import import_module
from pathlib import Path

import generated

tomllib = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

AREAS = {
    "errors": "errors and messages: two devices, host access, dtypes, shapes, device indices, generators, autograd",
    "waits": "which calls make the host wait, as sync debug mode tells it",
    "devices": "device functions, properties, generators, pinned memory, types, flags of `torch.backends`",
    "precision": "autocast, type promotion, layouts, reductions of nothing, ties and NaN",
    "nondeterminism": "deterministic algorithms: which operators raise, and with what message",
    "streams": "streams and events, busy and idle",
    "memory": "the counters, snapshots and limits of the caching allocator",
}


def programs(folder: Path, area: str) -> list[str]:
    """What the GPU was asked in an area."""
    return list(json.loads((folder / "gpu" / f"{area}.json").read_text())["answers"])


def count(folder: Path, area: str, device: str) -> tuple[int, int]:
    """How many programs of an area the device is asked under a name, and how many of them are listed as different."""
    asked = [program for program in programs(folder, area) if device == "cuda" or "torch.cuda" not in program]
    rows = tomllib.loads((folder / "different" / f"{area}.toml").read_text())["different"]
    patterns = [pattern for row in rows if device in row.get("names", (device,)) for pattern in row["programs"]]
    return len(asked), sum(any(re.search(pattern, program) for pattern in patterns) for program in asked)


def write(folder: Path, file: Path) -> None:
    """Writes the table, and the sentences with the sums, to be included by the page."""
    rows = ["| What was asked | Questions | Same answer | Listed with a reason |", "|---|---|---|---|"]
    for area, about in AREAS.items():
        asked, listed = count(folder, area, "cuda")
        rows.append(f"| {about} | {asked:,} | {asked - listed:,} | {listed:,} |")
    own = [count(folder, area, "openreg") for area in AREAS if area not in ("devices", "streams")]
    operators, lost = len(programs(folder, "cells")), len(programs(folder, "lost"))
    total = sum(count(folder, area, "cuda")[0] for area in AREAS) + operators + lost
    generated.write(
        file,
        "\n".join(rows)
        + f"\n\nUnder its own name the device is asked {sum(a for a, _ in own):,} of these programs, and "
        f"{sum(b for _, b in own):,} answers differ. The GPU also told which dtypes {operators:,} operators take, and "
        f"what a process hears after {lost:,} calls that lose a GPU. These are {total:,} answers together.\n",
    )
