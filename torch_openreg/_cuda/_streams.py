"""Streams and events: the classes of torch/csrc/cuda/Stream.cpp and Event.cpp.

As in PyTorch, the classes are subclasses of torch.Stream and torch.Event, and torch.cuda.Stream and torch.cuda.Event
are subclasses of these classes.
"""

from __future__ import annotations

from operator import index
from typing import Any

import torch

from torch_openreg._cuda import _bindings as _C

_CUDA = 1  # torch::kCUDA, the number of the device type


def _describe(stream: torch.Stream) -> tuple[int, int, int]:
    return stream.stream_id, stream.device_index, stream.device_type


def _current_stream(device: int) -> tuple[int, int, int]:
    return _describe(torch.accelerator.current_stream(device))


def _current_raw_stream(device: int) -> int:
    return _C._stream_pointer(torch.accelerator.current_stream(device))


def _default_stream(device: int) -> tuple[int, int, int]:
    return _describe(_C._get_default_stream(device))


def _stream_from_external(pointer: int, device: int) -> tuple[int, int, int]:
    return _describe(_C._stream_of_pointer(pointer, device))


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    torch.accelerator.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))


class _CudaStreamBase(torch.Stream):
    def __new__(
        cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0
    ) -> _CudaStreamBase:
        priority = index(priority)
        if not -(2**31) <= priority < 2**31:
            raise OverflowError(f"signed integer is {'less than minimum' if priority < 0 else 'greater than maximum'}")
        if not isinstance(stream_ptr, int):
            raise TypeError(f"argument 5 must be int, not {type(stream_ptr).__name__}")
        if stream_ptr:
            if priority:
                raise RuntimeError("Priority was explicitly set for a external stream")
            stream_id, device_index, device_type = _stream_from_external(stream_ptr, _C._get_device())
        if stream_id or device_index or device_type:
            if device_type != _CUDA:
                raise RuntimeError(f"Expected a stream of the CUDA device, but got the device type {device_type}.")
            return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)
        return super().__new__(cls, torch.device("cuda", _C._get_device()), priority=priority)

    @property
    def cuda_stream(self) -> int:
        """The handle, a cudaStream_t: 0 for a default stream."""
        return _C._stream_pointer(self)

    @property
    def priority(self) -> int:
        """The priority. A lower number is more urgent."""
        return _C._stream_priority(self)

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """The least urgent and the most urgent priority."""
        return _C._stream_priority_range()


class _CudaEventBase(torch.Event):
    _interprocess = False
    _external = False  # in a capture, a record and a wait become nodes of the graph

    def __new__(
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> _CudaEventBase:
        # As in C++, where each of the four arguments is a number.
        timing, waits, shared, external = (
            bool(index(each)) for each in (enable_timing, blocking, interprocess, external)
        )
        event = super().__new__(cls, "cuda", enable_timing=timing, blocking=waits, interprocess=shared)
        event._interprocess = shared
        event._external = external
        return event

    @classmethod
    def from_ipc_handle(cls, device: torch.device | str | int, handle: bytes) -> _CudaEventBase:
        """The event of another process, from the result of its ``ipc_handle()``."""
        prefix = "from_ipc_handle(): argument"
        if not isinstance(device, (torch.device, str, int)):
            raise TypeError(f"{prefix} 'device' (position 1) must be torch.device, not {type(device).__name__}")
        if not isinstance(handle, (bytes, str)):
            raise TypeError(f"{prefix} 'ipc_handle' (position 2) must be str, not {type(handle).__name__}")
        device = torch.device(device)
        if device.type != "cuda":
            raise RuntimeError(f"Event can only be created on CUDA devices, but got device type {device.type}")
        torch.cuda.init()
        event = cls(interprocess=True)
        _C._open_event(event, _C._get_device() if device.index is None else device.index, handle)
        return event

    def ipc_handle(self) -> bytes:
        """The handle for ``from_ipc_handle()`` in another process. The event needs ``interprocess=True``."""
        if not self._interprocess:
            error = torch.AcceleratorError(
                "CUDA error: invalid resource handle\n"
                "The event is for this process only: make it with torch.cuda.Event(interprocess=True)."
            )
            error.error_code = 400  # type: ignore[attr-defined] # cudaErrorInvalidResourceHandle
            raise error
        torch.cuda.init()
        self._create(_C._get_device())
        return _C._event_ipc_handle(self)

    def record(self, stream: torch.Stream) -> None:  # type: ignore[override] # torch.cuda.Event always passes a stream
        """Records the event: from now on it stands for this point of the stream."""
        own = self.device
        if own is not None and own.index != stream.device_index:  # c10/cuda/CUDAEvent.h
            raise RuntimeError(
                f"Event device {own.index} does not match recording stream's device {stream.device_index}."
            )
        self._create(stream.device_index)
        if self._external and stream.is_capturing():
            _C._record_external(self, stream)
        else:
            super().record(stream)

    def wait(self, stream: torch.Stream) -> None:  # type: ignore[override] # torch.cuda.Event always passes a stream
        """Makes later work of the stream wait for the event's last record."""
        if self._external and self.event_id and stream.is_capturing():
            _C._wait_external(self, stream)
        else:
            super().wait(stream)

    def _create(self, device: int) -> None:
        if self._interprocess and not self.event_id:
            _C._create_interprocess_event(self, device)

    @property
    def cuda_event(self) -> int:
        """The handle, a cudaEvent_t: 0 until record(), ipc_handle() or from_ipc_handle() has made the event."""
        return self.event_id

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The device on which the event was made; None until record(), ipc_handle() or from_ipc_handle() makes it."""
        return super().device if self.event_id else None

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Milliseconds between the two records."""
        return _C._elapsed_time(self, end_event)


SUPPLIED: dict[str, Any] = {
    "_CudaStreamBase": _CudaStreamBase,
    "_CudaEventBase": _CudaEventBase,
    "_cuda_getCurrentStream": _current_stream,
    "_cuda_getCurrentRawStream": _current_raw_stream,
    "_cuda_getDefaultStream": _default_stream,
    "_cuda_getStreamFromExternal": _stream_from_external,
    "_cuda_setStream": _set_stream,
}
