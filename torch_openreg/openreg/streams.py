"""Streams and events, as ``torch.cuda.streams``: ``torch.Stream`` and ``torch.Event`` with CUDA's arguments.

A stream belongs to the device it was made on. The current stream is kept for each thread and device.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_openreg import _C
from torch_openreg._identity import device_type

from . import device
from ._utils import DeviceLike, existing_device

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "current_stream",
    "default_stream",
    "set_stream",
    "stream",
]


class _OfThisDevice(type):
    """The metaclass of ``Stream`` and ``Event``: their instances are PyTorch's own objects that belong to this device.

    Real subclasses would not work: ``torch.Event.elapsed_time`` and ``torch.Stream.record_event`` accept only objects
    whose class is exactly ``torch.Event``.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__base__) and instance.device.type == device_type  # type: ignore[attr-defined, arg-type]


class Stream(torch.Stream, metaclass=_OfThisDevice):
    """Makes a ``torch.Stream``, a queue of work that runs in order. As ``torch.cuda.Stream``.

    ``device``: the stream's device (default: the current device). ``priority``: from 0 (default) down to -3, and a
    lower number is more urgent. A number below -3 becomes -3, and a positive number becomes 0.
    """

    def __new__(cls, device: DeviceLike | None = None, priority: int = 0, **kwargs: Any) -> torch.Stream:  # type: ignore[misc]
        if "stream_id" in kwargs:
            return torch.Stream(priority=priority, **kwargs)
        return torch.Stream(torch.device(device_type, existing_device(device)), priority=priority)


class Event(torch.Event, metaclass=_OfThisDevice):
    """Makes a ``torch.Event``, a mark in a stream to wait for and to measure with. As ``torch.cuda.Event``.

    ``enable_timing`` (default False): whether ``elapsed_time`` (in milliseconds) may be called. ``blocking`` (default
    False) has no effect, because a wait never spins. ``external`` (default False) has no effect, because only graphs
    use ``external``. ``interprocess`` (default False) is accepted, but ``ipc_handle`` raises NotImplementedError. An
    event belongs to the device of the stream that first records it; any stream may wait for it.
    """

    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> torch.Event:
        return torch.Event(device_type, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


def current_stream(device: DeviceLike | None = None) -> torch.Stream:
    """The calling thread's current stream of ``device`` (default: the current device).

    As ``torch.cuda.current_stream``.
    """
    return torch.accelerator.current_stream(existing_device(device))


def default_stream(device: DeviceLike | None = None) -> torch.Stream:
    """The stream of ``device`` (default: the current device) that is current until a program chooses another one.

    As ``torch.cuda.default_stream``.
    """
    return _C._get_default_stream(existing_device(device))


def set_stream(stream: torch.Stream | None) -> None:
    """Makes ``stream`` the current stream, and its device the current device. None changes nothing.

    As ``torch.cuda.set_stream``. ``with torch.openreg.stream(...)`` is usually better, because it restores the previous
    stream.
    """
    if stream is not None:
        torch.accelerator.set_stream(stream)


class StreamContext:
    """The context manager that ``stream`` returns. As ``torch.cuda.StreamContext``."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            self._device = device(self.stream.device)
            self._device.__enter__()
            self._previous = current_stream()
            set_stream(self.stream)

    def __exit__(self, *exc_info: object) -> None:
        if self.stream is not None:
            set_stream(self._previous)
            self._device.__exit__(*exc_info)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that makes ``stream`` and its device current, and then restores the previous ones.

    None changes nothing. As ``torch.cuda.stream``.
    """
    return StreamContext(stream)
