"""The effects of the package on its process: the CPU's speed after training, idle threads, and their CPU time."""

from __future__ import annotations

import os
import statistics
import time

import torch
from torch import nn

from benchmarks.timing import Effort, Side, synchronizer
from benchmarks.training import make_step


def cpu_forward_around_training(device: str, effort: Effort) -> tuple[float, float]:
    """The seconds of a small forward on the CPU, after and before training steps on the device, in this process.

    The two should be equal. If a backward ran on a thread of its own, it would leave a second OpenMP team behind, and
    small operators would get slower, on the device and on the CPU. The device prevents this (OpenMPTeam.h).
    """
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64)).requires_grad_(False)
    forward = Side("model(data)", {"model": model, "data": torch.rand(64, 64)}, "cpu")
    number = max(10, round(effort.seconds / max(forward.seconds(100), 1e-7)))

    def median() -> float:
        return statistics.median(forward.seconds(number) for _ in range(max(effort.turns, 5)))

    before = median()
    for name in ("MLP", "tiny MLP"):
        step = make_step(name, device)
        for _ in range(10):
            step()
    synchronizer(device)()
    return median(), before


def idle(device: str, seconds: float) -> dict[str, float]:
    """The number of threads after the first operators and after training, and the CPU time of the idle process.

    The CPU time is in milliseconds for each second.
    """
    (torch.ones(4, device=device) + 1).sum().item()
    used = len(os.listdir("/proc/self/task"))
    step = make_step("MLP", device)
    for _ in range(3):
        step()
    trained = len(os.listdir("/proc/self/task"))
    # OpenMP's threads look for work for a while before they sleep.
    time.sleep(0.2)
    start = time.process_time()
    time.sleep(seconds)
    return {"used": used, "trained": trained, "cpu_ms": (time.process_time() - start) * 1000 / seconds}
