"""``torch.autograd.profiler.profile(use_device=...)``: PyTorch's legacy profiler with the device's times."""

from __future__ import annotations

import json

import pytest
from comparison import DEVICE
from programs import Run

PROGRAM = f"""
import json, torch

x = torch.ones(600, 600, device="{DEVICE}:1")
with torch.accelerator.device_index(1), torch.autograd.profiler.profile(use_device="{DEVICE}") as profile:
    for _ in range(3):
        x @ x
    torch.accelerator.synchronize()
    for _ in range(10):
        x.view(-1)
    (x + 1).cpu()
wall = (profile.function_events[-1].time_range.end - profile.function_events[0].time_range.start)
print(json.dumps([wall, [[e.name, e.device_time_total] for e in profile.function_events]]))
"""


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_device_times_are_those_of_the_kernels(run_python: Run, mode: str) -> None:
    result = run_python(PROGRAM, OPENREG_EXECUTION=mode)
    # If the system has USDT probes, PyTorch's Kineto writes such lines when a trace begins and ends. In a build of
    # PyTorch with CUDA it also says that it finds no driver.
    lines = result.stderr.splitlines()
    assert [line for line in lines if not line.startswith("USDT:") and "gpuGetDeviceCount failed" not in line] == []
    wall, events = json.loads(result.stdout)
    times: dict[str, list[float]] = {}
    for name, microseconds in events:
        times.setdefault(name, []).append(microseconds)
    assert len(times["aten::mm"]) == 3
    assert all(time >= 0 for each in times.values() for time in each)
    # A product is 432 million operations, and a view computes nothing. A busy machine can only make a time longer.
    assert min(times["aten::mm"]) > 10 * min(times["aten::view"])
    assert min(times["aten::mm"]) > 200
    assert sum(times["aten::mm"]) < wall
