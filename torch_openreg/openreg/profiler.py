"""Marks the part of a program that an outside profiler records, as ``torch.cuda.profiler``.

On CUDA the outside profiler is Nsight Systems. Here the environment variable ``TORCH_OPENREG_TRACE=FILE`` takes its
place: the part from ``start()`` to ``stop()`` is written to that file as a trace of ``torch.profiler``. Without the
variable the marks have no effect, as on CUDA without a profiler.
"""

from __future__ import annotations

import atexit
import contextlib
import os
from collections.abc import Iterator
from typing import NamedTuple

import torch

__all__ = ["profile", "start", "stop"]


class _Part(NamedTuple):
    recording: torch.profiler.profile
    file: str


_part: _Part | None = None


def start() -> None:
    """Begins the part to record. Does nothing if the part has begun already. As ``torch.cuda.profiler.start``.

    The part has the work of all threads. Without ``stop()``, the part ends with the program. Raises RuntimeError while
    a ``torch.profiler.profile`` records, and ValueError if no file can be written at ``TORCH_OPENREG_TRACE``.
    """
    global _part
    file = os.environ.get("TORCH_OPENREG_TRACE")
    if _part is not None or not file:
        return
    if torch.autograd.profiler._is_profiler_enabled:
        raise RuntimeError(
            "torch.openreg.profiler.start() was called while torch.profiler records, and there is one recording at a "
            "time. Unset TORCH_OPENREG_TRACE, or end the other profile first"
        )
    # PyTorch's export only logs that it could not write the file.
    folder = os.path.dirname(file) or "."
    if os.path.exists(file):
        can_write = not os.path.isdir(file) and os.access(file, os.W_OK)
    else:
        can_write = os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)
    if not can_write:
        raise ValueError(
            f"TORCH_OPENREG_TRACE is {file!r}, and no file can be written there. Set it to a file in a folder that "
            "exists and is writable, or unset it."
        )
    # A profile of one thread can only end on that thread, but the exit handler may run on another thread.
    every_thread = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)
    recording = torch.profiler.profile(experimental_config=every_thread)
    recording.start()
    _part = _Part(recording, file)
    atexit.register(stop)  # a profiler that is not stopped ends the process with SIGSEGV


def stop() -> None:
    """Ends the part to record, and writes the trace. Does nothing if no part has begun. Waits for the device.

    As ``torch.cuda.profiler.stop``. A second part overwrites the file of the first part. May be called on another
    thread than ``start()``. Raises RuntimeError if a ``torch.profiler.profile`` within the part ended the recording.
    """
    global _part
    if _part is None:
        return
    part, _part = _part, None
    atexit.unregister(stop)
    is_recording = torch.autograd.profiler._is_profiler_enabled
    part.recording.stop()
    if not is_recording:  # there is no trace, and PyTorch's export would end the process with SIGSEGV
        raise RuntimeError(
            "torch.openreg.profiler.stop(): a torch.profiler.profile within the part has ended the recording, because "
            "there is one recording at a time. Unset TORCH_OPENREG_TRACE, or profile outside of the part"
        )
    part.recording.export_chrome_trace(part.file)


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """Context manager that calls ``start()`` and ``stop()``. As ``torch.cuda.profiler.profile``."""
    start()
    try:
        yield
    finally:
        stop()
