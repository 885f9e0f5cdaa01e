"""Counts results, holds them against the list of exceptions, and prints the table. Knows nothing of PyTorch."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from .runner import Record, key

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it along
    import tomli as tomllib

EXCEPTIONS = Path(__file__).with_name("exceptions.toml")

AGREES = ("bitwise", "tolerance")
COLUMNS = ("bitwise", "tolerance", "different", "error", "crash", "hang", "skipped")


@dataclass(frozen=True)
class Exception_:
    """An entry of exceptions.toml: the cases it covers, the status it allows, and why."""

    cases: tuple[str, ...]
    allow: str
    reason: str

    def covers(self, case: Record) -> bool:
        return any(fnmatchcase(key(case), pattern) for pattern in self.cases)


def load_exceptions(path: Path = EXCEPTIONS) -> list[Exception_]:
    """The entries of the exceptions file. Raises ValueError for one without a reason or with an unknown status."""
    entries = tomllib.loads(path.read_text()).get("exception", [])
    for entry in entries:
        if set(entry) != {"cases", "allow", "reason"} or not entry["reason"].strip():
            raise ValueError(f"{path.name}: an exception has cases, allow and reason, and nothing else: {entry}")
        if entry["allow"] not in (*COLUMNS, "values"):
            raise ValueError(f"{path.name}: allow must be one of {', '.join(COLUMNS)} or values, not {entry['allow']}")
    return [Exception_(tuple(entry["cases"]), entry["allow"], entry["reason"]) for entry in entries]


def apply_exceptions(cases: list[Record], exceptions: list[Exception_]) -> None:
    """Marks the cases whose values cannot be compared (allow = "values"): only their metadata is."""
    for case in cases:
        if any(e.allow == "values" and e.covers(case) for e in exceptions):
            case["values"] = False


def unlisted(records: list[Record], exceptions: list[Exception_]) -> list[Record]:
    """The results that neither agree, nor are skipped, nor are listed as exceptions."""
    return [
        record
        for record in records
        if record["status"] not in (*AGREES, "skipped")
        and not any(e.allow == record["status"] and e.covers(record) for e in exceptions)
    ]


def stale(records: list[Record], exceptions: list[Exception_]) -> list[str]:
    """The patterns of exceptions, of those whose cases were run, that no result needs any more."""
    result = []
    for exception in exceptions:
        for pattern in exception.cases:
            covered = [record for record in records if fnmatchcase(key(record), pattern)]
            needed = [r for r in covered if exception.allow in (r["status"], "values")]
            if covered and not needed:
                result.append(f"{pattern} ({exception.allow}): {exception.reason}")
    return result


def agreement(records: list[Record]) -> float:
    """The share of the cases that ran which agree, 0 to 1."""
    ran = [record for record in records if record["status"] != "skipped"]
    return sum(record["status"] in AGREES for record in ran) / len(ran) if ran else 0.0


def table(records: list[Record]) -> str:
    """Cases by variant and dtype, and by status; a line a row."""
    rows: dict[tuple[str, str], Counter[str]] = {}
    for record in records:
        rows.setdefault((record["variant"], record["dtype"]), Counter())[record["status"]] += 1
    lines = [f"{'variant':<16}{'dtype':<12}{'cases':>7}" + "".join(f"{column:>11}" for column in COLUMNS)]
    total: Counter[str] = Counter()
    for (variant, dtype), counts in sorted(rows.items()):
        lines.append(_row(variant, dtype, counts))
        total += counts
    lines.append(_row("total", "", total))
    samples: Counter[str] = Counter()
    for record in records:
        samples.update(record.get("samples", {}))
    lines.append(f"samples: {', '.join(f'{samples[c]} {c}' for c in COLUMNS if samples[c])}")
    lines.append(f"{agreement(records):.2%} of the cases that ran agree")
    return "\n".join(lines)


def _row(variant: str, dtype: str, counts: Counter[str]) -> str:
    return f"{variant:<16}{dtype:<12}{sum(counts.values()):>7}" + "".join(f"{counts[c]:>11}" for c in COLUMNS)


def skipped_reasons(records: list[Record]) -> str:
    """Why cases were skipped, most frequent first; a line a reason. Operators on which the CPU raises are joined."""
    reasons = Counter(
        "the CPU raises" if "the CPU raises" in r["detail"] else r["detail"]
        for r in records
        if r["status"] == "skipped"
    )
    return "\n".join(f"  skipped {count:>5}: {reason}" for reason, count in reasons.most_common())


def line(record: Record) -> str:
    """One result, as a line."""
    return f"{record['status']:<10} {key(record)}: {record['detail']}"
