"""Dry execution: a program allocates as always, and large tensors are not computed.

::

    torch.openreg.dry.start()  # or OPENREG_DRY=1M before `import torch`

A device may then be larger than the host's memory: a kernel that reads a large tensor is skipped, and its results get
memory that nobody touches. Small tensors, and integers that come from the host, have real values. A small result of a
skipped kernel is zeros; such a value is *assumed*, and so is what is computed from it. ``python -m torch_openreg dry``
runs a program in this way and says whether it fits.

If the device model has rates (``python -m torch_openreg models cuda-h100``), time is simulated: each kernel takes the
time that its floating-point operations and its bytes need at these rates. ``Event.elapsed_time()`` returns simulated
time, and ``clock()`` says what it consists of. It is an estimate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import torch

from torch_openreg.openreg import _dry_saves, _dry_weights, models  # type: ignore[attr-defined]
from torch_openreg.simulator import _assumed_values, _models
from torch_openreg.simulator import _bindings as _C
from torch_openreg.simulator._sizes import byte_count

__all__ = ["AssumedRead", "Clock", "KernelTime", "StreamTime", "assume", "assumed_reads", "clock", "start"]

_running = False  # the simulated clock


class AssumedRead(NamedTuple):
    """A place where the program got values that nobody computed."""

    line: str
    """The line of Python, as ``"/home/me/train.py:12 in step"``."""
    how: str
    """``"item()"``, ``"equal()"`` or ``"a copy to the host"``. ``"random numbers of a large CPU tensor"``: they are zeros.
    ``"counts of histc(), assumed to be equal"``: such as the tokens of each expert.
    ``"choices of topk(), assumed to be spread equally"``: such as the experts of each token."""
    count: int  # type: ignore[assignment]
    """How often. It hides the method of tuples."""


class KernelTime(NamedTuple):
    """All kernels of one name."""

    count: int  # type: ignore[assignment]
    seconds: float
    flops: float
    bytes: float


class StreamTime(NamedTuple):
    """What a stream did from its first work to its last."""

    device: int
    busy: float
    """Seconds in which kernels ran."""
    idle_for_launch: float
    """Seconds in which the stream had no work, because the host had not launched the next kernel yet."""
    idle_for_work: float
    """Seconds in which the next kernel waited for the work of another stream."""


class Clock(NamedTuple):
    """The simulated time: sums from the start of dry execution to now. Times are in seconds."""

    seconds: float
    """When the host and all devices are done with the work so far."""
    compute: float
    """Of the kernels that their floating-point operations bound."""
    memory: float
    """Of the kernels that the bandwidth of the device's memory bounds."""
    link: float
    """Of the copies between the host and a device, or between devices."""
    latency: float
    """What all kernels take besides their work."""
    communication: float
    """Of the collectives of a simulated world."""
    exposed_communication: float
    """In which collectives ran, and the device did nothing else."""
    flops: float
    """Floating-point operations of matrix products, convolutions and attention."""
    peak_seconds: float
    """What these operations would take at the peak of their dtypes. Divided by ``seconds``: the utilization."""
    kernels: dict[str, KernelTime]
    """By name."""
    streams: dict[int, StreamTime]
    """By number, in the order of their first work."""

    def since(self, earlier: Clock) -> Clock:
        """What was added since an ``earlier`` state of the clock. A kernel that did not run meanwhile is left out."""
        kernels = {}
        for name, row in self.kernels.items():
            then = earlier.kernels.get(name, KernelTime(0, 0, 0, 0))
            if row.count > then.count:
                kernels[name] = KernelTime(
                    row.count - then.count, row.seconds - then.seconds, row.flops - then.flops, row.bytes - then.bytes
                )
        streams = {}
        for number, stream in self.streams.items():
            before = earlier.streams.get(number, StreamTime(stream.device, 0, 0, 0))
            streams[number] = StreamTime(
                stream.device,
                stream.busy - before.busy,
                stream.idle_for_launch - before.idle_for_launch,
                stream.idle_for_work - before.idle_for_work,
            )
        return Clock(
            self.seconds - earlier.seconds,
            self.compute - earlier.compute,
            self.memory - earlier.memory,
            self.link - earlier.link,
            self.latency - earlier.latency,
            self.communication - earlier.communication,
            self.exposed_communication - earlier.exposed_communication,
            self.flops - earlier.flops,
            self.peak_seconds - earlier.peak_seconds,
            kernels,
            streams,
        )


def start(limit: int = 1 << 20) -> None:
    """Starts dry execution of all devices of this process, until the process ends. Also starts the simulated clock, if
    the device model has rates: choose the model before.

    Tensors of more than ``limit`` bytes are not computed. To be called before large tensors are made. Raises
    RuntimeError if dry execution has started already, and ValueError if ``limit`` is 0. Does not synchronise.
    """
    _C._dry_start(limit)
    _C._record_launch_sites(True)  # type: ignore[attr-defined]
    _dry_weights.start()
    _dry_saves.start()
    _C._dry_set_matmul_workspace(models.properties().get("matmul_workspace", 0))
    _C._dry_set_context_memory(models.properties().get("context_memory", 0))
    of_groups = [models.properties().get(f"{each}_memory", 0) for each in ("communicator", "exchange")]
    _C._dry_set_communicator_memory(*of_groups)
    if rates := models.rates():
        _start_clock(rates)


def _start_clock(rates: dict[str, float]) -> None:
    global _running
    peaks: list[tuple[torch.dtype | None, float]] = []
    for name in _models.DTYPES:
        if dtype := getattr(torch, name, None):
            peaks.append((dtype, rates.get(f"flops_{name}", rates["flops_float32"])))
    peaks.append((None, rates.get("flops_tf32", rates["flops_float32"])))
    _C._dry_start_clock(
        peaks,
        [rates[f"{each}_efficiency"] for each in ("matmul", "convolution", "attention", "attention_backward")],
        rates["memory_bandwidth"] * rates["memory_efficiency"],
        rates["host_bandwidth"],
        rates["peer_bandwidth"],
        rates["kernel_latency"],
        rates["launch_time"],
        [
            rates["peer_bandwidth"] * rates["peer_efficiency"],
            rates["network_bandwidth"] * rates["network_efficiency"],
            rates["peer_latency"],
            rates["network_latency"],
            rates["collective_latency"],
        ],
    )
    _running = True


def clock() -> Clock | None:
    """The simulated time so far. None if dry execution has not started, or if the device model has no rates.

    Does not synchronise, and takes no simulated time.
    """
    if not _running:
        return None
    totals = _C._dry_clock()
    kernels = {name: KernelTime(*row) for name, row in totals.pop("kernels").items()}
    streams = {number: StreamTime(*row) for number, row in totals.pop("streams").items()}
    return Clock(**totals, kernels=kernels, streams=streams)


def assume(where: torch.Tensor | str, value: torch.Tensor | bool | float | Sequence[bool | float]) -> None:
    """Gives a better value than zero for something that nobody computed.

    ``where`` is a small tensor of the device: its elements become ``value``, a number or a tensor that can be expanded to
    its shape. Nothing happens if they were computed, or if dry execution has not started, so a program may always call
    this function. Or ``where`` is a line of Python, such as ``"train.py:12"``: then ``item()``, ``equal()`` and copies to
    the host in this line give ``value``, wherever they would give a value that nobody computed. A sequence of values is
    given one by one, and the last one repeats. The file may be written with its folders. A line that is given again
    begins anew. What is computed from the value stays assumed. Does not synchronise.

    Raises ValueError for a tensor that is not small, or not on the device, and for a line or a value that is none.
    """
    if isinstance(where, str):
        _C._dry_assume_at(_assumed_values.checked_line(where), _assumed_values.checked_values(value))
    else:
        _C._dry_assume(where, torch.as_tensor(value))


def assumed_reads() -> list[AssumedRead]:
    """Where the program has read values that nobody computed, the most frequent places first."""
    return sorted((AssumedRead(*row) for row in _C._dry_reads()), key=lambda each: -each.count)


def _obey_environment() -> None:
    """Starts dry execution if OPENREG_DRY is set. Called at import. The pytest plugin calls it in forked children."""
    if limit := os.environ.get("OPENREG_DRY", "").strip():
        start(byte_count(limit) or 0)
        if file := os.environ.get("OPENREG_DRY_ASSUME", "").strip():
            for line, values in _assumed_values.read(file).items():
                assume(line, values)


_obey_environment()
