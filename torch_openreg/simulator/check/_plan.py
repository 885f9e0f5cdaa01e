"""Which runs of the program there are, and the environment variables of each."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

# Each kind of fault: the point, what is injected there, and the word for the report.
FAULTS = {
    "malloc": ("oom", "allocations"),
    "launch": ("failure", "launches"),
    "copy": ("failure", "copies"),
    "message": ("failure", "collectives"),
}
SANITIZER = "race,init,memory,leak,graph"
LAUNCHER = "PYTHON_EXEC"  # torchrun starts this file instead of Python
STACKS = signal.SIGUSR2  # a process that hangs gets it, and writes the stacks of its threads


@dataclass(frozen=True)
class Place:
    """The n-th call of a kind, and the line of the program that makes it; no line if it is not known.

    ``rank``: the one whose call it is; empty: every rank's.
    """

    point: str
    number: int
    file: str = ""
    line: int = 0
    rank: str = ""

    @property
    def fault(self) -> str:
        rank = f"rank{self.rank}@" if self.rank else ""
        return f"{rank}{self.point}:{self.number}={FAULTS[self.point][0]}"


@dataclass(frozen=True)
class Run:
    """A run after the first two. ``kind``: "sanitizer", "poison", "schedule", "fault" or "model"."""

    kind: str
    settings: Mapping[str, str]
    place: Place | None = None


def places(point: str, count: int, rows: Sequence[Sequence[int | str]], limit: int) -> list[Place]:
    """At most ``limit`` of the ``count`` calls of a kind: the first, the last, the first of each line, then any.

    ``rows``: for each series of calls of one line the first, the last, the file and the line, in order.
    """

    def at(number: int) -> Place:
        for first, last, file, line in rows:
            if int(first) <= number <= int(last):
                return Place(point, number, str(file), int(line))
        return Place(point, number)

    if count == 0 or limit <= 0:
        return []
    chosen = dict.fromkeys([1, count][:limit])
    firsts: dict[tuple[str, int], int] = {}
    for first, _, file, line in rows:
        firsts.setdefault((str(file), int(line)), int(first))
    for numbers in (_spread(list(firsts.values()), limit), _spread(range(1, count + 1), 2 * limit)):
        for number in numbers:
            if len(chosen) < limit:
                chosen.setdefault(number)
    return [at(number) for number in sorted(chosen)]


def _spread(numbers: Sequence[int], limit: int) -> Iterator[int]:
    step = max(1.0, len(numbers) / limit)
    for index in range(min(limit, len(numbers))):
        yield numbers[int(index * step)]


def in_single_ranks(chosen: Sequence[Place], ranks: Sequence[str]) -> list[Place]:
    """Every second place of a kind in one rank only, which leaves the others waiting, and the rest in every rank."""
    if len(ranks) < 2:
        return [*chosen]
    found = []
    for point in FAULTS:
        for index, place in enumerate(place for place in chosen if place.point == point):
            found.append(replace(place, rank=ranks[-1 - index // 2 % len(ranks)]) if index % 2 else place)
    return found


def first_part(seeds: int, models: Sequence[str]) -> list[Run]:
    """The runs that do not depend on what the first run did."""
    count = os.environ.get("OPENREG_DEVICE_COUNT", "2")
    runs = [Run("sanitizer", {"OPENREG_SANITIZER": SANITIZER}), Run("poison", {"OPENREG_POISON": "1"})]
    for schedule in ("late", *(f"random:{seed}" for seed in range(1, seeds + 1))):
        runs.append(Run("schedule", {"OPENREG_EXECUTION": schedule}))
    for model in models:  # the number of devices is the program's affair
        runs.append(Run("model", {"OPENREG_MODEL": model, "OPENREG_DEVICE_COUNT": count}))
    return runs


def fault_runs(chosen: Sequence[Place]) -> list[Run]:
    """The runs with faults. The kinds alternate, so that a budget that ends early has tried each kind."""
    by_point = {point: [place for place in chosen if place.point == point] for point in FAULTS}
    longest = max(map(len, by_point.values()), default=0)
    return [
        Run("fault", {"OPENREG_FAULTS": found[index].fault}, found[index])
        for index in range(longest)
        for found in by_point.values()
        if index < len(found)
    ]
