"""Counts results, compares them with the list of exceptions, and prints the table. Does not use PyTorch."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.table import Table
from torch_conformance.runner import Record

if sys.version_info >= (3, 11):
    import tomllib
else:  # tomli comes with pytest
    import tomli as tomllib

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

# "raises": the device raises the same error as the CPU.
AGREES = ("bitwise", "raises")
# "tolerance": within torch.testing.assert_close; "precision": as close to the result in float64 as the CPU's is.
COLUMNS = (*AGREES, "tolerance", "precision", "different", "error", "crashed", "hung", "skipped")
# What an exception can leave out of the comparison.
PARTS = ("values", "strides", "sharing", "empty")


@dataclass(frozen=True)
class Exception_:
    """An entry of exceptions.toml: the cases it covers, the result it allows, and why."""

    cases: tuple[str, ...]
    allow: str
    reason: str
    varies: bool = False

    def covers(self, case: Record) -> bool:
        return any(fnmatchcase(case["name"], pattern) for pattern in self.cases)

    def accepts(self, result: str) -> bool:
        return result == self.allow or (result, self.allow) == ("tolerance", "precision")


def load_exceptions(device: str) -> list[Exception_]:
    """The exceptions of every device, and those of the file of this device, tests/DEVICE/sweep_exceptions.toml."""
    of_device = Path(__file__).parents[2] / device / "sweep_exceptions.toml"
    return read_exceptions(EXCEPTIONS) + (read_exceptions(of_device) if of_device.exists() else [])


def read_exceptions(path: Path) -> list[Exception_]:
    """The entries of a file. Raises ValueError for an entry without a reason or with an unknown result."""
    entries = tomllib.loads(path.read_text()).get("exception", [])
    for entry in entries:
        if set(entry) - {"varies"} != {"cases", "allow", "reason"} or not entry["reason"].strip():
            raise ValueError(
                f"{path.name}: an exception has cases, allow and reason, perhaps varies, and nothing else: {entry}"
            )
        if entry["allow"] not in (*COLUMNS, *PARTS):
            raise ValueError(f"{path.name}: allow is one of {', '.join((*COLUMNS, *PARTS))}, not {entry['allow']}")
    return [Exception_(tuple(e["cases"]), e["allow"], e["reason"], e.get("varies", False)) for e in entries]


def apply_exceptions(cases: list[Record], exceptions: list[Exception_]) -> None:
    """Tells the workers which parts of a case they do not compare, and if the CPU's precision is enough for a case."""
    for exception in exceptions:
        if exception.allow in (*PARTS, "precision"):
            for case in filter(exception.covers, cases):
                case.setdefault("lenient", []).append(exception.allow)


def unlisted(records: list[Record], exceptions: list[Exception_]) -> list[Record]:
    """The results that neither agree, nor are skipped, nor are listed as exceptions."""
    return [
        record
        for record in records
        if not agrees(record) and not any(e.accepts(record["result"]) and e.covers(record) for e in exceptions)
    ]


def stale(records: list[Record], exceptions: list[Exception_]) -> list[str]:
    """The patterns that no result needs any more, although their cases were run. None allows a part or varies."""
    result = []
    for exception in exceptions:
        for pattern in exception.cases:
            covered = [record for record in records if fnmatchcase(record["name"], pattern)]
            needed = exception.varies or exception.allow in PARTS
            needed = needed or any(exception.accepts(record["result"]) for record in covered)
            if covered and not needed:
                result.append(f"{pattern} ({exception.allow}): {exception.reason}")
    return result


def agrees(record: Record) -> bool:
    """Whether the device agrees with the CPU, or the CPU has nothing to compare with."""
    return record["result"] in (*AGREES, "skipped")


def agreement(records: list[Record]) -> float:
    """The share of the cases that ran which agree, 0 to 1."""
    ran = [record for record in records if record["result"] != "skipped"]
    return sum(record["result"] in AGREES for record in ran) / len(ran) if ran else 0.0


def _table(records: list[Record], title: str, category: Callable[[Record], str]) -> Table:
    rows: dict[str, Counter[str]] = {}
    for record in records:
        rows.setdefault(category(record), Counter())[record["result"]] += 1
    table = Table(title=title, show_footer=True)
    total: Counter[str] = sum(rows.values(), Counter())
    table.add_column(title.removeprefix("by "), footer="total")
    table.add_column("cases", justify="right", footer=str(total.total()))
    for column in COLUMNS:
        table.add_column(column, justify="right", footer=str(total[column]))
    for name, counts in sorted(rows.items()):
        table.add_row(name, str(counts.total()), *(str(counts[column]) for column in COLUMNS))
    return table


def _exceptions(records: list[Record], exceptions: list[Exception_]) -> Table:
    """The exceptions that were needed: what they allow, why, and their cases."""
    table = Table(title="listed exceptions", show_lines=True)
    for column in ("allowed", "cases", "of", "why"):
        table.add_column(column, justify="right" if column == "cases" else "left")
    for exception in exceptions:
        covered = [record for record in records if exception.covers(record) and record["result"] != "skipped"]
        if exception.allow not in PARTS:
            covered = [r for r in covered if not agrees(r) and exception.accepts(r["result"])]
        if covered:
            names = dict.fromkeys(f"{record['suite']}/{record['entry']}" for record in covered)
            shown = ", ".join([*names][:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            table.add_row(exception.allow, str(len(covered)), shown, exception.reason)
    return table


def show(records: list[Record], exceptions: list[Exception_]) -> None:
    """Prints the numbers of cases by category and result, of samples by result, the exceptions, and why cases were
    skipped. A variant that does not apply, such as the in-place form of an operator without one, is not a case."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    console.print(_table(records, "by suite and variant", lambda record: f"{record['suite']} {record['variant']}"))
    console.print(_table(records, "by dtype", lambda record: record["dtype"]))
    console.print(_exceptions(records, exceptions))
    samples: Counter[str] = Counter()
    for record in records:
        samples.update(record.get("samples", {}))
    # All operators for which the CPU cannot make samples count under one reason.
    reasons = Counter(
        record["detail"].partition(": the CPU raises")[0] for record in records if record["result"] == "skipped"
    )
    for reason, count in reasons.most_common():
        print(f"skipped {count:>6}: {reason}")
    print(f"samples: {', '.join(f'{samples[c]} {c}' for c in COLUMNS if samples[c])}")
    print(f"{agreement(records):.2%} of the cases that ran agree")


def line(record: Record) -> str:
    """One result: a line, and more lines for a traceback or the last words of a process."""
    detail = record["detail"].strip().replace("\n", "\n" + " " * 11)
    return f"{record['result']:<10} {record['name']}: {detail}"
