"""Execution modes: when queued work runs. Launch sites: where it was launched. Debug mode: where the host waits."""

from __future__ import annotations

from numbers import Integral

from torch_openreg import _C

__all__ = [
    "execution_mode",
    "get_execution_mode",
    "get_sync_debug_mode",
    "record_launch_sites",
    "set_sync_debug_mode",
]

_SYNC_DEBUG_MODES = ("default", "warn", "error")


class execution_mode:
    """Sets the execution mode of the device. As a context manager, it restores the previous mode at the end.

    ``mode`` is a value of the environment variable OPENREG_EXECUTION. ``"inline"``: an operator or copy has run when its
    call returns. ``"async"``: an operator or copy is queued on the current stream and its call returns at once, as on
    CUDA; an operator whose results' shapes depend on the data waits for the stream. ``"late"``: everything runs as late
    as the host allows. ``"random:SEED"``: queued work runs in a random order, which follows from the seed (1 to
    2^64 - 1). ``"early"``: as ``"inline"``. In the schedules late and random a missing synchronisation gives wrong
    results. The rules of streams and events are the same in every mode, and so are all results of a correct program.
    ``seed`` (0 to 2^64 - 1, default 0) is for the mode that takes its schedule from a seed: late for 0, else random.

    The mode at the start is OPENREG_EXECUTION, else inline. The mode holds for all devices and threads. This call waits
    for all devices. Raises ValueError for another mode.
    """

    def __init__(self, mode: str, seed: int = 0) -> None:
        _C._init()
        self._previous = _C._get_execution_mode()
        _C._set_execution_mode(mode, seed)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc_info: object) -> None:
        _C._set_execution_mode(*self._previous)


def get_execution_mode() -> str:
    """The execution mode now, such as ``"inline"``; the schedules late and random are one mode. Does not wait."""
    _C._init()
    return _C._get_execution_mode()[0]


def record_launch_sites(enabled: bool = True) -> None:
    """Sets whether the failure of a queued operator names the line of Python that launched the operator.

    ``enabled`` (default True) switches the recording of these lines on or off. The recording costs about 1 us a launch.
    It is off at the start, unless TORCH_OPENREG_LAUNCH_TRACEBACK=1. Without the recording, the message names only the
    operator, and the traceback shows the call that waited. Does not wait.
    """
    _C._record_launch_sites(enabled)


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Sets what happens if an operation makes the host wait for a stream: nothing, a warning or an error.

    As ``torch.cuda.set_sync_debug_mode``. ``debug_mode`` is ``"default"`` or 0, ``"warn"`` or 1, ``"error"`` or 2;
    another value raises RuntimeError. Reported are ``item()``, blocking copies between host and device, operators that
    must know the data (``nonzero``, masks as indices, ``unique``, ``equal``) and ``Stream.synchronize()``, in every
    execution mode. Waits for an event or a whole device are not reported. Does not wait.
    """
    if isinstance(debug_mode, str):
        if debug_mode not in _SYNC_DEBUG_MODES:
            raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
        debug_mode = _SYNC_DEBUG_MODES.index(debug_mode)
    if not isinstance(debug_mode, Integral) or isinstance(debug_mode, bool):
        raise RuntimeError("invalid argument to set_sync_debug_mode")
    if not 0 <= debug_mode <= 2:
        raise RuntimeError("invalid value of debug_mode, expected one of 0,1,2")
    _C._set_sync_debug_mode(int(debug_mode))


def get_sync_debug_mode() -> int:
    """0, 1 or 2: the value that ``set_sync_debug_mode`` set. As ``torch.cuda.get_sync_debug_mode``."""
    return _C._get_sync_debug_mode()
