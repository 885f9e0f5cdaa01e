"""Runs the pairs of tests/simulator/sanitizer_pairs.py, and prints what the sanitizer finds and what it costs.

    python tests/simulator/sanitizer_table.py                              # all pairs, in the execution mode inline
    python tests/simulator/sanitizer_table.py --mode chaos even_and_odd_rows

All checks are on. "caught": the check in the column before it has reported the bug. "also ...": other checks reported
the bug, too. "false alarm": what was reported of the repaired program. "cost": the time of the repaired program with
this one check, divided by its time without the sanitizer; each time is the median of ``--repeat`` runs. Most programs
run for less than a millisecond, so their costs say little about the cost of a training step. The exit status is 1 if a
bug was not caught or a repaired program was reported.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parents[1] / "support"))

from sanitizer_pairs import PAIRS, Pair, forget, reports_of

from torch_openreg import openreg
from torch_openreg.openreg import sanitizer


class Row(NamedTuple):
    pair: str
    check: str
    found: list[str]  # the kinds of the reports about the bug
    alarms: list[str]  # the kinds of the reports about the repaired program
    cost: float


def seconds(pair: Pair, check: str) -> float:
    """The time of one run of the repaired program; with ``check`` on, unless it is empty. A first run is not timed."""
    with sanitizer.enable(check, mode="report") if check else contextlib.nullcontext():
        pair.body(True)  # the end of a session of the check leak empties the caches of the allocators
        openreg.synchronize()
        begin = time.perf_counter()
        pair.body(True)
        openreg.synchronize()
        return time.perf_counter() - begin


def measure(pair: Pair, repeat: int) -> Row:
    """Runs a pair. The runs with and without the check alternate, so that the machine's other work affects both."""
    found, alarms = (sorted({report.kind for report in reports_of(pair, fixed)}) for fixed in (False, True))
    times = [(seconds(pair, ""), seconds(pair, pair.kind)) for _ in range(repeat)]
    without, with_check = map(statistics.median, zip(*times, strict=True))
    forget()
    return Row(pair.body.__name__, pair.kind, found, alarms, with_check / without)


def in_words(row: Row) -> tuple[str, ...]:
    others = [kind for kind in row.found if kind != row.check]
    caught = ", ".join(["yes" if row.check in row.found else "no"] + [f"also {kind}" for kind in others])
    return row.pair, row.check, caught, ", ".join(row.alarms) or "none", f"{row.cost:.1f}"


def total(check: str, rows: Sequence[Row]) -> tuple[str, ...]:
    caught = sum(row.check in row.found for row in rows)
    cost = statistics.median(row.cost for row in rows)
    return f"{len(rows)} pairs", check, f"{caught}", f"{sum(bool(row.alarms) for row in rows)}", f"{cost:.1f} (median)"


def print_table(rows: Sequence[Row]) -> None:
    lines = [("pair", "check", "caught", "false alarm", "cost"), *map(in_words, rows)]
    for check in dict.fromkeys(row.check for row in rows):
        lines.append(total(check, [row for row in rows if row.check == check]))
    lines.append(total("all", rows))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        print("  ".join(map(str.ljust, line, widths)).rstrip())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="pair", help="default: all pairs")
    parser.add_argument("--mode", default="inline", choices=["inline", "async", "chaos"])
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    pairs = [pair for pair in PAIRS if not options.names or pair.body.__name__ in options.names]
    if unknown := set(options.names) - {pair.body.__name__ for pair in pairs}:
        parser.error(f"there is no pair {', '.join(sorted(unknown))}")
    warnings.filterwarnings("ignore")
    with openreg.execution_mode(options.mode, seed=3):
        rows = [measure(pair, options.repeat) for pair in pairs]
    print_table(rows)
    sys.exit(any(row.check not in row.found or row.alarms for row in rows))


if __name__ == "__main__":
    main()
