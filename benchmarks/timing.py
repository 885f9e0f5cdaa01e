"""Compares the times of two devices in one process: the same loop runs on both, by turns."""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch


class Effort(NamedTuple):
    """The length of a measurement: `seconds` for one loop, and how often the two sides take turns."""

    seconds: float
    turns: int


THOROUGH = Effort(seconds=0.01, turns=9)
QUICK = Effort(seconds=0.002, turns=3)


class Side:
    """One side of a comparison: a statement, and the names that it uses.

    Statements are compiled into `timeit`'s loop, so that no call of a wrapper is timed. The loop ends with one wait for
    the device. On the CPU it ends with a call that does nothing.
    """

    def __init__(self, statement: str, names: dict[str, Any], device: str) -> None:
        self._loop = timeit.Timer(statement, globals=names)
        self._wait = synchronizer(device)

    def seconds(self, number: int) -> float:
        """The seconds of one execution, measured over `number` executions. Waits for the device."""
        self._wait()
        start = time.perf_counter()
        self._loop.timeit(number)
        self._wait()
        return (time.perf_counter() - start) / number


def synchronizer(device: str) -> Callable[[], object]:
    """The function that waits for a device."""
    if torch.device(device).type == "cpu":
        return lambda: None
    return torch.accelerator.synchronize


def alternate(sides: Sequence[Side], effort: Effort) -> tuple[float, float]:
    """The median seconds of one execution on the device and on the reference.

    The two sides take turns. In each turn both execute their statement equally often.
    """
    device, reference = sides
    device.seconds(1)
    number, took = 1, reference.seconds(1)
    while number * took < effort.seconds:
        number = max(2 * number, int(number * 0.8 * effort.seconds / max(number * took, 1e-9)))
        took = reference.seconds(number)
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(effort.turns):
        # The sides take turns at being first, because the first side finds the caches as the other side has left them.
        for side in (0, 1) if turn % 2 else (1, 0):
            times[side].append(sides[side].seconds(number))
    return statistics.median(times[0]), statistics.median(times[1])


def absolute(side: Side, effort: Effort) -> float:
    """The median seconds of one execution."""
    return alternate((side, side), effort)[0]
