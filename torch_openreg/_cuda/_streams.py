"""Streams and events: what torch/csrc/cuda/Stream.cpp and Event.cpp offer."""

from __future__ import annotations

from typing import Any

import torch

from torch_openreg import _C


def _current_stream(device: int) -> tuple[int, int, int]:
    stream = torch.accelerator.current_stream(device)
    return stream.stream_id, stream.device_index, stream.device_type


def _default_stream(device: int) -> tuple[int, int, int]:
    stream = _C._get_default_stream(device)
    return stream.stream_id, stream.device_index, stream.device_type


def _set_stream(stream_id: int, device_index: int, device_type: int) -> None:
    torch.accelerator.set_stream(
        torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
    )


class _CudaStreamBase(torch.Stream):
    def __new__(  # type: ignore[misc]
        cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0
    ) -> _CudaStreamBase:
        if stream_id or device_index or device_type:
            return super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)
        return super().__new__(cls, torch.device("cuda", _C._get_device()), priority=priority)


class _CudaEventBase(torch.Event):
    def __new__(  # type: ignore[misc]
        cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
    ) -> _CudaEventBase:
        return super().__new__(cls, "cuda", enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)


SUPPLIED: dict[str, Any] = {
    "_CudaStreamBase": _CudaStreamBase,
    "_CudaEventBase": _CudaEventBase,
    "_cuda_getCurrentStream": _current_stream,
    "_cuda_getDefaultStream": _default_stream,
    "_cuda_setStream": _set_stream,
}
