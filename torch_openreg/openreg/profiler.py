"""The begin and the end of the part of a program that an outside profiler records, as ``torch.cuda.profiler``.

On CUDA the profiler is Nsight Systems. Here it is the environment variable ``TORCH_OPENREG_TRACE=FILE``: the part from
``start()`` to ``stop()`` is written to that file as a trace of ``torch.profiler``. A program that marks its part for
CUDA's tools therefore needs no change. Without the variable the marks have no effect, as on CUDA without a profiler.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

__all__ = ["profile", "start", "stop"]

_recording: torch.profiler.profile | None = None


def start() -> None:
    """Begins the part to record. Does nothing if the part has begun already. As ``torch.cuda.profiler.start``."""
    global _recording
    if _recording is None and os.environ.get("TORCH_OPENREG_TRACE"):
        _recording = torch.profiler.profile()
        _recording.start()


def stop() -> None:
    """Ends the part to record, and writes the trace. Does nothing if no part has begun. Waits for the device.

    As ``torch.cuda.profiler.stop``. A second part overwrites the file of the first part.
    """
    global _recording
    if _recording is not None:
        recording, _recording = _recording, None
        recording.stop()
        recording.export_chrome_trace(os.environ["TORCH_OPENREG_TRACE"])


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Context manager that calls ``start()`` and ``stop()``. As ``torch.cuda.profiler.profile``."""
    start()
    try:
        yield
    finally:
        stop()
