"""Which part of a program a profiler outside of it records, as ``torch.cuda.profiler``.

On CUDA the profiler is Nsight Systems. Here it is the environment variable ``TORCH_OPENREG_TRACE=FILE``: what happens
from ``start()`` to ``stop()`` is written to that file as a trace of ``torch.profiler``, so that a program that marks
its part for CUDA's tools needs no other line. Without the variable nothing comes of the marks, as on CUDA without a
profiler.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch

__all__ = ["profile", "start", "stop"]

_recording: torch.profiler.profile | None = None


def start() -> None:
    """The part to record begins; nothing if it has begun. As ``torch.cuda.profiler.start``."""
    global _recording
    if _recording is None and os.environ.get("TORCH_OPENREG_TRACE"):
        _recording = torch.profiler.profile()
        _recording.start()


def stop() -> None:
    """The part to record ends, and is written; nothing if none has begun. Waits for the device.

    As ``torch.cuda.profiler.stop``. A second part overwrites the file of the first.
    """
    global _recording
    if _recording is not None:
        recording, _recording = _recording, None
        recording.stop()
        recording.export_chrome_trace(os.environ["TORCH_OPENREG_TRACE"])


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Context manager: ``start()`` and ``stop()``. As ``torch.cuda.profiler.profile``."""
    start()
    try:
        yield
    finally:
        stop()
