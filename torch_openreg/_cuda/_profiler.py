"""torch.profiler and torch.cuda.nvtx for devices of the type "cuda".

csrc/Registration.cpp registers the device's profiler with Kineto, which gets the events as CUDA's events.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch._C._profiler import ProfilerActivity

_NVTX = {
    "markA": "mark",
    "rangeEnd": "range_end",
    "rangePop": "range_pop",
    "rangePushA": "range_push",
    "rangeStartA": "range_start",
}


class _Nvtx(ModuleType):
    """torch._C._nvtx. Ranges are those of torch.profiler. Functions return what NVTX returns with a tool attached."""

    def __getattr__(self, name: str) -> Any:
        from torch_openreg.openreg import nvtx  # not at the top: most programs do not use NVTX

        if name in _NVTX:
            return getattr(nvtx, _NVTX[name])
        raise AttributeError(f"module 'torch._C._nvtx' has no attribute {name!r}")

    @staticmethod
    def deviceRangeStart(message: str, stream: int) -> object:
        """Does nothing, so the range is in no trace. On a stream, the profiler draws only the ranges of the host: each
        from the first to the last kernel that was launched within the range.
        """

    @staticmethod
    def deviceRangeEnd(handle: object, stream: int) -> None:
        """Does nothing."""


SUPPLIED: dict[str, Any] = {"_nvtx": _Nvtx("torch._C._nvtx", "NVTX, for torch.profiler.")}


def _supported_activities() -> set[ProfilerActivity]:
    """The activities that can be recorded: the host and the device."""
    return {ProfilerActivity.CPU, ProfilerActivity.CUDA}


class emit_nvtx:
    """As ``torch.autograd.profiler.emit_nvtx``, without ranges: each trace of the device has the operators already."""

    def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
        self.enabled = enabled
        self.entered = False
        self.record_shapes = record_shapes

    def __enter__(self) -> emit_nvtx | None:
        if not self.enabled:
            return None
        if self.entered:
            raise RuntimeError("NVTX annotation context manager is not reentrant")
        self.entered = True
        torch.cuda.synchronize()
        return self

    def __exit__(self, *exception: object) -> None:
        if self.enabled:
            torch.cuda.synchronize()
