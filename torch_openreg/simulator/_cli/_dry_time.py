"""The estimate of time in the answer of ``torch-openreg dry``."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from html import escape
from statistics import median
from typing import Any

from torch_openreg import _page

KERNELS = 10  # how many kernels are printed
# Measured on published results that the rates do not use: see the page will-it-fit.md of the book.
# What the time of the kernels consists of: names in the report, and words for readers.
_BOUNDS = {
    "compute": "compute",
    "memory": "memory",
    "link": "copies over a link",
    "communication": "collectives",
    "latency": "latency of kernels",
}
ERROR = "an estimate: -42 % to +65 % on 25 published results, within 18 % on 17 of them"


def estimate(time: Mapping[str, Any] | None) -> dict[str, Any]:
    """The members of the answer about time. ``time`` is that of the report: ``_dry_report._time()``.

    The shares are those of the steps from the end of the first one, because the first one has work of its own, or of
    the whole script, if it made fewer than two steps.
    """
    if time is None:
        return {"seconds": None, "step_seconds": None, "time": None}
    ends, whole = time["step_ends"], time["total"]
    steps = [after - before for before, after in itertools.pairwise(ends)]
    part = time["steps"] or whole
    seconds, streams = part["seconds"], list(part["streams"].values())
    busiest = max(
        streams, key=lambda each: each[1], default=(0, 0, 0, 0)
    )  # device, busy, idle_for_launch, idle_for_work
    busy = sum(part[each] for each in _BOUNDS)
    kernels = sorted(part["kernels"].items(), key=lambda each: -each[1][1])
    return {
        "seconds": whole["seconds"],
        "step_seconds": median(steps) if steps else None,
        "time": {
            "is_estimate": True,
            "steps": len(steps),
            "bound_by": {each: part[each] / busy for each in _BOUNDS} if busy else {},
            "busy": busiest[1] / seconds if seconds else 0.0,
            "idle_for_launch": busiest[2] / seconds if seconds else 0.0,
            "idle_for_work": busiest[3] / seconds if seconds else 0.0,
            "communication": part["communication"] / seconds if seconds else 0.0,
            "exposed_communication": part["exposed_communication"] / seconds if seconds else 0.0,
            "streams": [
                {
                    "device": device,
                    "busy_seconds": busy,
                    "idle_for_launch_seconds": launch,
                    "idle_for_work_seconds": work,
                }
                for device, busy, launch, work in streams
            ],
            "flops": part["flops"],
            "utilization": part["peak_seconds"] / seconds if seconds else 0.0,
            "kernels": [
                {"name": name, "count": count, "seconds": spent, "flops": flops, "bytes": moved}
                for name, (count, spent, flops, moved) in kernels[:KERNELS]
            ],
        },
    }


def span(seconds: float) -> str:
    """A time for readers: 0.0123 is "12.3 ms"."""
    for unit, factor in (("s", 1), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}" if seconds * factor < 1000 else f"{seconds * factor:.0f} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _rows(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    time = answer["time"]
    step = f"{span(answer['step_seconds'])}, the median of {time['steps']}" if time["steps"] else "fewer than two steps"
    bound = ", ".join(f"{share:.0%} {_BOUNDS[name]}" for name, share in time["bound_by"].items() if share >= 0.005)
    hidden = (
        f"{time['communication']:.0%} of the time; {time['exposed_communication']:.0%} while nothing else ran (exposed)"
    )
    return [
        ("step", step),
        ("script", span(answer["seconds"])),
        ("utilization", f"{time['utilization']:.1%} of the peak (MFU; recomputed activations count)"),
        ("busiest stream", f"{time['busy']:.0%} busy"),
        ("idle", f"{time['idle_for_launch']:.0%} for launches, {time['idle_for_work']:.0%} for other streams"),
        *([("collectives", hidden)] if time["communication"] else []),
        ("kernels' time", bound or "none"),
    ]


def _kernels(answer: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    # Attention for the CPU has a kernel of its own here, whose name would mislead: the time is that of the device.
    rows = [(each, each["name"].replace("_for_cpu", "")) for each in answer["time"]["kernels"]]
    return [(span(each["seconds"]), f"{each['count']} x", name) for each, name in rows]


def lines(answer: Mapping[str, Any]) -> list[str]:
    """The estimate for readers."""
    if answer["time"] is None:
        return ["No time is estimated: the device model has no rates (torch-openreg models cuda-h100 shows some)."]
    return [
        f"Estimated time ({ERROR}):",
        *(f"  {name:<18}{text}" for name, text in _rows(answer)),
        "Kernels that dominate:",
        *(f"  {seconds:>10}  {count:>8} {name}" for seconds, count, name in _kernels(answer)),
    ]


def section(answer: Mapping[str, Any]) -> str:
    """The estimate as a part of the page."""
    if answer["time"] is None:
        return f"<h2>Time</h2><p>{escape(lines(answer)[0])}</p>"
    rows: Sequence[tuple[str, str]] = _rows(answer)
    kernels = [(name, count, seconds) for seconds, count, name in _kernels(answer)]
    return (
        f"<h2>Estimated time</h2><p>{escape(ERROR)}</p>"
        + _page.table(("", "estimate"), rows)
        + _page.table(("kernel", "calls", "time"), kernels)
    )
