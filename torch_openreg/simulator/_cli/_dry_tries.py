"""The option ``--try`` of ``torch-openreg dry``: what a change of the program would save, by running it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from torch_openreg import _page
from torch_openreg._cli import memory
from torch_openreg._words import size
from torch_openreg.simulator import _expandable
from torch_openreg.simulator._cli import _dry_time
from torch_openreg.simulator._dry_changes import CHANGES, COMPUTED

HEAD = ("change", "fits", "allocated", "reserved", "saved", "step", "changed")


def _row(change: str, answer: Mapping[str, Any], unchanged: Mapping[str, Any]) -> dict[str, Any]:
    failed = bool(answer["exit_status"]) and not answer["out_of_memory_at"]
    is_known = bool(answer["changed"]) and not failed
    both_fit = is_known and answer["fits"] and unchanged["fits"]
    return {
        "change": change,
        "changed": answer["changed"],
        "error": answer["error"] if failed else None,
        "fits": answer["fits"] if is_known else None,
        "peak_allocated": answer["peak_allocated"] if is_known else None,
        "peak_reserved": answer["peak_reserved"] if is_known else None,
        "saved_bytes": unchanged["peak_reserved"] - answer["peak_reserved"] if both_fit else None,
        "step_seconds": answer["step_seconds"] if is_known else None,
    }


def _with_expandable_segments(unchanged: Mapping[str, Any], devices: Iterable[memory.Device]) -> dict[str, Any]:
    """The answer, if the allocator had them."""
    history = [each.history for each in devices if each.index == unchanged["device"] and each.history]
    if not history or not unchanged["fits"]:
        return {**unchanged, "exit_status": 0, "changed": {}}
    peak, segments = _expandable.reserved(history[0])
    return {**unchanged, "peak_reserved": peak, "changed": {"segment": segments}}


def run(
    changes: Iterable[str],
    run_once: Callable[[], dict[str, Any]],
    unchanged: Mapping[str, Any],
    devices: Sequence[memory.Device],
) -> list[Any]:
    """Runs the program once with each change. Returns a row for each; None stands for what is not known. ``devices``: the
    memory of the run without a change."""
    rows = []
    for change in changes:
        if change == COMPUTED:
            rows.append(_row(change, _with_expandable_segments(unchanged, devices), unchanged))
            continue
        os.environ["OPENREG_DRY_CHANGE"] = change
        print(f"tries {change}", flush=True)
        rows.append(_row(change, run_once(), unchanged))
    os.environ.pop("OPENREG_DRY_CHANGE", None)
    return rows


def _saved(count: int | None) -> str:
    return "" if count is None else size(count) if count >= 0 else "-" + size(-count)


def rows(answer: Mapping[str, Any]) -> list[Sequence[str]]:
    """The table for readers: its head, the program without a change, and each change."""
    cells: list[Sequence[str]] = [HEAD]
    for row in ({**answer, "change": "none", "changed": {}, "saved_bytes": None}, *answer["tried"]):
        if row["fits"] is None:
            why = row["error"] or f"does not apply: {CHANGES[row['change']]}"
            cells.append((row["change"], "not known" if row["error"] else "", "", "", "", "", why))
            continue
        cells.append(
            (
                row["change"],
                "yes" if row["fits"] else "no",
                size(row["peak_allocated"]),
                size(row["peak_reserved"]),
                _saved(row["saved_bytes"]),
                "" if row["step_seconds"] is None else _dry_time.span(row["step_seconds"]),
                ", ".join(f"{count} x {name}" for name, count in row["changed"].items()),
            )
        )
    return cells


def section(answer: Mapping[str, Any]) -> str:
    """The rows as a part of the page; empty without the option."""
    if "tried" not in answer:
        return ""
    head, *body = rows(answer)
    return f"<h2>With one change each</h2>{_page.table(head, body)}"
