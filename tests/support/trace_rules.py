"""Checks the rules of a chrome trace that ``torch.profiler`` wrote: violations() lists what breaks them.

The format: "Trace Event Format" of Chromium's catapult. Times are microseconds with three decimals.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from comparison import DEVICE

DEVICE_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset")
RUNTIME = {"cuda": "cuda_runtime"}.get(DEVICE, "privateuse1_runtime")
HOST_CATEGORIES = ("cpu_op", "user_annotation", "python_function", RUNTIME)
NEEDED = {
    "X": ("name", "cat", "pid", "tid", "ts", "dur"),
    "s": ("name", "cat", "id", "pid", "tid", "ts"),
    "f": ("name", "cat", "id", "pid", "tid", "ts", "bp"),
    "M": ("name", "pid", "args"),
    "i": ("name", "ts", "pid", "tid", "s"),
}
ROUNDING = 0.002  # a begin and a length are each cut to a nanosecond
# PyTorch and the plugin each measure how the processor's counter relates to the time of day, so their times differ a
# little. The plugin moves the calls of an operator into the time of the operator, but not out of the time of another
# operator that ended just before. A call outside of operators is not moved, and may end up to CLOCKS microseconds after
# the Python function that made the call.
CLOCKS = 10.0

Event = dict[str, Any]


class Trace:
    """The entries of a trace file by kind; ``end`` of an event is ``ts`` plus ``dur``."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content
        self.entries: list[Event] = content["traceEvents"]
        self.complete = [each for each in self.entries if each["ph"] == "X"]
        for each in self.complete:
            each["end"] = each["ts"] + each["dur"]
        self.device = [each for each in self.complete if each["cat"] in DEVICE_CATEGORIES]
        self.host = [each for each in self.complete if each["cat"] in HOST_CATEGORIES]
        self.ranges = [each for each in self.complete if each["cat"] == "gpu_user_annotation"]
        self.operators = {each["args"]["External id"]: each for each in self.complete if each["cat"] == "cpu_op"}
        self.calls = {each["args"]["correlation"]: each for each in self.complete if each["cat"] == RUNTIME}

    @classmethod
    def read(cls, file: Path | str) -> Trace:
        return cls(json.loads(Path(file).read_text()))

    def named(self, name: str) -> list[Event]:
        return [each for each in self.complete if each["name"] == name]

    def operator_of(self, event: Event) -> str:
        return self.operators[event["args"]["External id"]]["name"]


def lanes(events: list[Event]) -> dict[tuple[Any, Any], list[Event]]:
    """The events of each row, in the order in which they are drawn."""
    found: dict[tuple[Any, Any], list[Event]] = defaultdict(list)
    for each in sorted(events, key=lambda event: (event["ts"], -event["dur"])):
        found[each["pid"], each["tid"]].append(each)
    return found


def is_older(event: Event) -> bool:
    """Whether work of the device was launched before the recording: the trace has neither its call nor its operator."""
    return event["args"].get("launched before the recording") is True


def describe(event: Event) -> str:
    return f"{event['cat']} {event['name']} at {event['ts']:.3f} for {event.get('dur', 0):.3f}"


def violations(trace: Trace, *, all_linked: bool = True) -> list[str]:
    """The violations of the rules. ``all_linked``: an operator of the trace must have started each piece of work."""
    return [
        *_fields(trace),
        *_arrows(trace),
        *_rows(trace),
        *_nesting(trace),
        *_causes(trace, all_linked),
    ]


def _fields(trace: Trace) -> Iterator[str]:
    for each in trace.entries:
        if each.get("ph") not in NEEDED:
            yield f"unknown phase: {each}"
            continue
        for key in NEEDED[each["ph"]]:
            if key not in each:
                yield f"no {key}: {each}"
        for key in ("ts", "dur"):
            if key in each and not (math.isfinite(each[key]) and each[key] >= 0):
                yield f"{key} is {each[key]}: {each}"


def _arrows(trace: Trace) -> Iterator[str]:
    starts: dict[Any, list[Event]] = defaultdict(list)
    ends: dict[Any, list[Event]] = defaultdict(list)
    for each in trace.entries:
        if each.get("cat") == "ac2g":
            (starts if each["ph"] == "s" else ends)[each["id"]].append(each)
    calls = {(each["pid"], each["tid"], each["ts"]) for each in trace.calls.values()}
    work = {(each["pid"], each["tid"], each["ts"]) for each in trace.device}
    for number in starts.keys() | ends.keys():
        begin, finish = starts[number], ends[number]
        if len(begin) != 1 or len(finish) != 1:
            yield f"arrow {number} has {len(begin)} starts and {len(finish)} ends"
            continue
        if finish[0]["ts"] < begin[0]["ts"]:
            yield f"arrow {number} goes back in time"
        if (begin[0]["pid"], begin[0]["tid"], begin[0]["ts"]) not in calls:
            yield f"arrow {number} starts at no call"
        if (finish[0]["pid"], finish[0]["tid"], finish[0]["ts"]) not in work:
            yield f"arrow {number} ends at no work of the device"
    launched = {each["args"]["correlation"] for each in trace.device if each["args"]["correlation"]}
    if launched != starts.keys():
        yield f"work without an arrow: {sorted(launched - starts.keys())[:5]}"


def _rows(trace: Trace) -> Iterator[str]:
    labels = {each["pid"]: each["args"]["labels"] for each in trace.entries if each["name"] == "process_labels"}
    names = {
        (each["pid"], each["tid"]): each["args"]["name"] for each in trace.entries if each["name"] == "thread_name"
    }
    for device, stream in lanes(trace.device):
        if labels.get(device) != f"{DEVICE}:{device}":
            yield f"the row of device {device} is called {labels.get(device)}"
        if not names.get((device, stream), "").startswith(f"stream {stream}"):
            yield f"the row of stream {stream} of device {device} is called {names.get((device, stream))}"


def _nesting(trace: Trace) -> Iterator[str]:
    for events in lanes(trace.device).values():
        for before, after in pairwise(events):
            if after["ts"] < before["end"] - ROUNDING:
                yield f"overlap: {describe(before)}, {describe(after)}"

    def is_timed_by_the_plugin(event: Event) -> bool:
        return event["cat"] == RUNTIME and event["args"].get("External id") not in trace.operators

    def is_of_another_operator(call: Event, operator: Event) -> bool:
        if (call["cat"], operator["cat"]) != (RUNTIME, "cpu_op"):
            return False
        return bool(call["args"].get("External id") != operator["args"]["External id"])

    # A range of the user begins within its function __enter__ and ends within __exit__: the two do not nest.
    without_functions = [each for each in trace.host if each["cat"] != "python_function"]
    without_ranges = [each for each in trace.host if each["cat"] != "user_annotation"]
    for row in (without_functions, without_ranges, trace.ranges):
        for events in lanes(row).values():
            open_events: list[Event] = []
            for each in events:
                while open_events and open_events[-1]["end"] <= each["ts"] + ROUNDING:
                    open_events.pop()
                two_clocks = open_events and (
                    is_timed_by_the_plugin(each) != is_timed_by_the_plugin(open_events[-1])
                    or is_of_another_operator(each, open_events[-1])
                )
                if open_events and each["end"] > open_events[-1]["end"] + (CLOCKS if two_clocks else ROUNDING):
                    yield f"{describe(each)} ends after {describe(open_events[-1])}, in which it began"
                open_events.append(each)


def _causes(trace: Trace, all_linked: bool) -> Iterator[str]:
    for each in trace.device:
        operator = trace.operators.get(each["args"].get("External id"))
        if operator is None:
            if all_linked and not is_older(each):
                yield f"no operator started {describe(each)}"
        elif each["ts"] < operator["ts"]:
            yield f"{describe(each)} before its operator, {describe(operator)}"
        if correlation := each["args"]["correlation"]:
            call = trace.calls.get(correlation)
            if call is None:
                yield f"no call started {describe(each)}"
            elif each["ts"] < call["ts"]:
                yield f"{describe(each)} before its call, {describe(call)}"
