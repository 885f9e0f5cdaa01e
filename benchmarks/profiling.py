"""What a profiler adds to the time of an operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks import targets
from benchmarks.report import Row
from benchmarks.timing import Effort


def measure_profiling(device: str, effort: Effort) -> Iterator[Row]:
    """The processor time of `x + x` on 16 elements: without a profiler, with the host profiled, with host and device.

    Each figure is the minimum of several rounds, in which the three take turns. The time includes that of the thread
    that runs queued kernels, so that the cost of its records is counted.
    """
    if device == "cpu":
        return
    x = torch.ones(16, device=device)
    calls = round(3e5 * effort.seconds)
    kinds = {
        "no profiler": nullcontext,
        "host profiled": lambda: profile(activities=[ProfilerActivity.CPU]),
        "host and device profiled": profile,
    }
    for mode, limit in targets.PROFILED_KERNEL_US.items():
        best = dict.fromkeys(kinds, float("inf"))
        with torch.get_device_module(device).execution_mode(mode):
            for _ in range(2 * effort.turns):
                for name, context in kinds.items():
                    with context():
                        best[name] = min(best[name], _seconds_a_call(x, calls))
        yield from (Row(f"{mode}, {name}", best[name] * 1e6, unit="µs", device=best[name]) for name in kinds)
        both, host = best["host and device profiled"], best["host profiled"]
        yield Row(f"{mode}, the device's part", (both - host) * 1e6, "", limit, "µs", both, host)


def _seconds_a_call(x: torch.Tensor, calls: int) -> float:
    for _ in range(50):
        x + x
    torch.accelerator.synchronize()
    start = time.process_time()
    for _ in range(calls):
        x + x
    torch.accelerator.synchronize()
    return (time.process_time() - start) / calls
