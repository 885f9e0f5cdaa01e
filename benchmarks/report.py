"""The rows that the benchmark measures, and the tables that show them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measured value and its target.

    Attributes:
        name: the name of the measurement.
        value: the device's time divided by the reference's time, a value in `unit`, or a difference of counts.
        case: the circumstances, such as the number of elements. A table shows the cases of one name side by side.
        limit: the largest value that meets the target; None if there is no target.
        unit: the unit of `value` and `limit`; "" for a ratio or a count.
        device, reference: the times from which `value` was computed, in seconds; None if there are none.
    """

    name: str
    value: float
    case: str = ""
    limit: float | None = None
    unit: str = ""
    device: float | None = None
    reference: float | None = None

    @property
    def missed(self) -> bool:
        # The rounded value decides: 1.304 meets a target of 1.30.
        return self.limit is not None and round(self.value, 2) > round(self.limit, 2)


def ratio(name: str, times: tuple[float, float], limit: float | None = None, case: str = "") -> Row:
    """A row that divides the first time by the second."""
    return Row(name, times[0] / times[1], case, limit, device=times[0], reference=times[1])


def summary(rows: Sequence[Row], name: str, limit: float | None, case: str) -> list[Row]:
    """The median of some rows as a row; no row if there are none."""
    return [Row(name, statistics.median(row.value for row in rows), case, limit)] if rows else []


def print_table(console: Console, title: str, reference: str, rows: Sequence[Row]) -> None:
    """Prints rows with their cases side by side. `reference` names what the device is compared with."""
    by_case: dict[str, dict[str, Row]] = {}
    for row in rows:
        by_case.setdefault(row.case, {})[row.name] = row
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for case in by_case:
        for column in (f"{case}\ndevice", reference, "ratio", "target"):
            table.add_column(column if by_case.keys() != {""} else column.strip(), justify="right", no_wrap=True)
    for name in dict.fromkeys(row.name for row in rows):
        table.add_row(escape(name), *(cell for found in by_case.values() for cell in _cells(found.get(name))))
    console.print(table)


def _cells(row: Row | None) -> list[str]:
    if row is None:
        return [""] * 4
    # The sum turns -0.0 into 0.0.
    value = f"{round(row.value, 2) + 0.0:.2f}{row.unit and ' ' + row.unit}"
    if row.missed:
        value = f"[red]✗ {value}[/]"
    limit = "" if row.limit is None else f"{row.limit:.2f}"
    return [_time(row.device), _time(row.reference), value, limit]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
