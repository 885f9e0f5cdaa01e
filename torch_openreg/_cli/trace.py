"""``torch-openreg trace FILE``: says in words what a trace of ``torch.profiler`` shows.

The file comes from ``export_chrome_trace`` or ``tensorboard_trace_handler``, after a run on this device or on CUDA. To
see the trace, open the file at https://ui.perfetto.dev or chrome://tracing. This command prints how busy the streams
were, the gaps, the waits, the copies and the kernels.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import zlib
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from torch_openreg._words import plural, size

KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"
ON_DEVICE = (KERNEL, COPY, FILL)
RUNTIME = ("privateuse1_runtime", "cuda_runtime", "cuda_driver")
ON_HOST = ("cpu_op", "user_annotation", "python_function", *RUNTIME)
# Calls in which the host waits for the device. orKernelBegin is among them: a kernel that cannot be queued runs on the
# thread that called the operator, and first waits for the queued work of its stream.
WAITS = (
    "orDeviceSynchronize",
    "orEventSynchronize",
    "orKernelBegin",
    "orMemcpy",
    "orMemcpyWithStream",
    "orStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "cudaStreamSynchronize",
)
# Calls that make a stream wait for another stream. The host does not wait.
STREAM_WAITS = ("orStreamWaitEvent", "cudaStreamWaitEvent")
# The key that marks work whose launch is not in the trace (csrc/profiler/Kineto.cpp).
LAUNCHED_BEFORE = "launched before the recording"
GAPS = 5


class Event(NamedTuple):
    """One event with a duration. Times are in microseconds."""

    category: str
    name: str
    process: int | str
    thread: int | str
    begin: float
    end: float
    arguments: dict[str, Any]

    @property
    def duration(self) -> float:
        return self.end - self.begin


def _arguments(entry: dict[str, Any]) -> dict[str, Any]:
    arguments = entry.get("args") or {}
    if not isinstance(arguments, dict):
        raise TypeError(f'the "args" of an event are not a JSON object: {arguments!r}')
    return arguments


class Trace:
    """The events of a trace file, grouped by thread of the host and by stream of the device."""

    def __init__(self, file: Path) -> None:
        data = file.read_bytes()
        content = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        entries = content["traceEvents"] if isinstance(content, dict) else content
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise ValueError("the events are not a list of objects")
        self.execution = content.get("openreg_execution") if isinstance(content, dict) else None
        events = sorted(
            (
                Event(
                    each.get("cat", ""),
                    each["name"],
                    each["pid"],
                    each["tid"],
                    float(each["ts"]),
                    float(each["ts"]) + float(each["dur"]),
                    _arguments(each),
                )
                for each in entries
                if each.get("ph") == "X" and "dur" in each
            ),
            key=lambda event: (event.begin, -event.end),
        )
        self.device = [event for event in events if event.category in ON_DEVICE]
        self.host = [event for event in events if event.category in ON_HOST]
        self.runtime = [event for event in self.host if event.category in RUNTIME]
        self.calls = {
            event.arguments["correlation"]: event for event in self.runtime if "correlation" in event.arguments
        }
        self.operators = {
            event.arguments["External id"]: event
            for event in self.host
            if event.category == "cpu_op" and "External id" in event.arguments
        }
        self.threads: dict[tuple[int | str, int | str], list[Event]] = defaultdict(list)
        for event in self.host:
            self.threads[event.process, event.thread].append(event)
        self.lanes: dict[tuple[int | str, int | str], list[Event]] = defaultdict(list)
        for event in self.device:
            self.lanes[event.process, event.thread].append(event)

    def operator_of(self, event: Event) -> str:
        """``event`` is device work or a call of the runtime (``or...``, ``cuda...``).

        Returns the name of the operator that started ``event``, or "no operator".
        """
        operator = self.operators.get(event.arguments.get("External id"))
        return operator.name if operator else "no operator"

    def thread_of(self, event: Event) -> list[Event]:
        """``event`` is work of the device.

        Returns all host events of the thread that started the work; empty if the thread is unknown.
        """
        origin = self.calls.get(event.arguments.get("correlation")) or self.operators.get(
            event.arguments.get("External id")
        )
        return self.threads[origin.process, origin.thread] if origin else []


def union(events: Iterable[Event]) -> list[tuple[float, float]]:
    """The intervals in which at least one event ran. ``events`` must be sorted by their begin."""
    intervals: list[tuple[float, float]] = []
    for event in events:
        if intervals and event.begin <= intervals[-1][1]:
            intervals[-1] = (intervals[-1][0], max(intervals[-1][1], event.end))
        else:
            intervals.append((event.begin, event.end))
    return intervals


def activity(events: list[Event], begin: float, end: float) -> list[tuple[str, float]]:
    """What a thread did from ``begin`` to ``end``: names of events with their times, the longest time first.

    The time of an event does not include the events nested in it. Time outside of all events has the name
    "no operator". ``events`` must be the events of one thread, sorted by their begin.
    """
    times: dict[str, float] = defaultdict(float)
    enclosing: list[Event] = []
    at = begin

    def advance(to: float) -> None:
        nonlocal at
        to = min(max(to, begin), end)
        if to > at:
            times[enclosing[-1].name if enclosing else "no operator"] += to - at
            at = to

    for event in events:
        if event.end <= begin or event.begin >= end:
            continue
        while enclosing and enclosing[-1].end <= event.begin:
            advance(enclosing[-1].end)
            enclosing.pop()
        advance(event.begin)
        enclosing.append(event)
    while enclosing:
        advance(enclosing[-1].end)
        enclosing.pop()
    advance(end)
    return sorted(times.items(), key=lambda item: -item[1])


def summarise(trace: Trace) -> dict[str, Any]:
    """The findings, in the form that ``--json`` prints. Times are in microseconds."""
    everything = [*trace.host, *trace.device]
    begin = min((event.begin for event in everything), default=0.0)
    end = max((event.end for event in everything), default=0.0)
    lanes, gaps = [], []
    for (device, stream), events in sorted(trace.lanes.items(), key=str):
        busy = union(events)
        time = sum(last - first for first, last in busy)
        lanes.append(
            {
                "device": device,
                "stream": stream,
                "busy": time,
                "idle": busy[-1][1] - busy[0][0] - time,
                "kernels": sum(event.category == KERNEL for event in events),
                "copies": sum(event.category == COPY for event in events),
                "fills": sum(event.category == FILL for event in events),
            }
        )
        begins = [event.begin for event in events]
        for (_, first), (last, _) in pairwise(busy):
            following = events[bisect_right(begins, last) - 1]
            gaps.append((last - first, device, stream, first, following))
    gaps.sort(key=lambda gap: -gap[0])
    return {
        "execution": trace.execution,
        "duration": end - begin,
        "streams": lanes,
        "gaps": [
            {
                "device": device,
                "stream": stream,
                "begin": first - begin,
                "duration": length,
                "before": following.name,
                "host": [
                    {"name": name, "time": time}
                    for name, time in activity(trace.thread_of(following), first, following.begin)
                ],
            }
            for length, device, stream, first, following in gaps[:GAPS]
        ],
        "kernels": _totals(trace, [event for event in trace.device if event.category == KERNEL]),
        "copies": _totals(trace, [event for event in trace.device if event.category == COPY]),
        "fills": _totals(trace, [event for event in trace.device if event.category == FILL]),
        "waits": _totals(trace, [event for event in trace.runtime if event.name in WAITS]),
        "stream_waits": sum(event.name in STREAM_WAITS for event in trace.runtime),
        "queue_delay": _queue_delay(trace),
        "launched_before": sum(event.arguments.get(LAUNCHED_BEFORE) is True for event in trace.device),
    }


def _totals(trace: Trace, events: list[Event]) -> list[dict[str, Any]]:
    groups: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        groups[event.name].append(event)
    totals = []
    for name, group in groups.items():
        operators: dict[str, int] = defaultdict(int)
        for event in group:
            operators[trace.operator_of(event)] += 1
        time = sum(event.duration for event in group)
        size = sum(event.arguments.get("bytes", 0) for event in group)
        totals.append(
            {
                "name": name,
                "count": len(group),
                "time": time,
                "bytes": size,
                "operators": dict(sorted(operators.items(), key=lambda item: -item[1])),
            }
        )
    return sorted(totals, key=lambda total: -total["time"])


def _queue_delay(trace: Trace) -> dict[str, float] | None:
    delays = [event.arguments["queued (us)"] for event in trace.device if "queued (us)" in event.arguments]
    if not delays:
        return None
    return {"count": len(delays), "mean": sum(delays) / len(delays), "longest": max(delays)}


def _time(microseconds: float) -> str:
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if microseconds < limit:
            return f"{microseconds / factor:.1f} {unit}"
    return f"{microseconds / 1e6:.2f} s"


def _from(operators: dict[str, int]) -> str:
    shown = list(operators)[:3]
    return ", ".join(shown) + (f" and {len(operators) - len(shown)} more" if len(operators) > len(shown) else "")


def describe(summary: dict[str, Any]) -> str:
    """The summary as text."""
    lines = [f"The trace covers {_time(summary['duration'])}."]
    if summary["execution"] == "inline":
        lines.append("Execution was inline: kernels ran on the threads that called them, and were not queued.")
    if not summary["streams"]:
        lines.append("The device did nothing during the trace, or the profiler did not record the device.")
    for lane in summary["streams"]:
        share = 100 * lane["busy"] / summary["duration"] if summary["duration"] else 0.0
        lines.append(
            f"Device {lane['device']}, stream {lane['stream']}: busy {_time(lane['busy'])} ({share:.0f} % of the trace)"
            f", idle {_time(lane['idle'])} between its first and its last work; {plural(lane['kernels'], 'kernel')}, "
            f"{plural(lane['copies'], 'copy', 'copies')}, {plural(lane['fills'], 'fill')}."
        )
    if delay := summary["queue_delay"]:
        work, its = ("Copies and fills", "their") if summary["execution"] == "inline" else ("Work", "its")
        lines.append(
            f"{work} waited {_time(delay['mean'])} on average between {its} launch and {its} begin, "
            f"and {_time(delay['longest'])} at most."
        )
    if count := summary["launched_before"]:
        lines.append(
            f"The trace does not show which operators launched {count} of the kernels, copies and fills, because the "
            "launch was before the recording."
        )
    if count := summary["stream_waits"]:
        lines.append(f"A stream was made to wait for another stream {plural(count, 'time')}.")
    if summary["gaps"]:
        lines += ["", "The largest gaps, in which a stream ran no kernel, copy or fill:"]
    for gap in summary["gaps"]:
        host = ", ".join(f"{each['name']} {_time(each['time'])}" for each in gap["host"][:3])
        lines.append(
            f"  {_time(gap['duration'])} on device {gap['device']}, stream {gap['stream']}, at {_time(gap['begin'])}, "
            f"before {gap['before']}. The host meanwhile: {host or 'not recorded'}."
        )
    sections = (
        ("kernels", "Kernels, by total time:"),
        ("copies", "Copies:"),
        ("fills", "Fills:"),
        ("waits", "The host waited for the device in:"),
    )
    for key, title in sections:
        if summary[key]:
            lines += ["", title]
        for total in summary[key][:10]:
            speed = ""
            if total["bytes"]:
                speed = f", {size(total['bytes'])}, {total['bytes'] / max(total['time'], 1e-3) / 1e3:.1f} GB/s"
            lines.append(
                f"  {total['name']}: {total['count']} times, {_time(total['time'])}{speed}; "
                f"from {_from(total['operators'])}"
            )
        if len(summary[key]) > 10:
            lines.append(f"  and {len(summary[key]) - 10} more (--json has all)")
    return "\n".join(lines)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="torch-openreg trace", description=__doc__.partition("\n")[0])
    parser.add_argument("file", type=Path, help="the file that export_chrome_trace() wrote, .json or .json.gz")
    parser.add_argument("--json", action="store_true", help="print all findings as JSON, with times in microseconds")
    arguments = parser.parse_args(argv)
    try:
        trace = Trace(arguments.file)
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, RecursionError) as error:
        print(f"torch-openreg trace: cannot read {arguments.file} as a trace: {error!r}", file=sys.stderr)
        return 1
    summary = summarise(trace)
    print(json.dumps(summary, indent=2) if arguments.json else describe(summary))
    return 0
