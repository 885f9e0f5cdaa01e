"""Faults: errors and delays of the device that a test asks for, to see how the program reacts.

::

    with torch.openreg.faults.inject("malloc:3=oom"):
        train()  # the allocation of its third tensor on the device raises torch.OutOfMemoryError

A program of faults is a list, separated by semicolons, of ``[rankN@][deviceN@]POINT[:WHICH]EFFECT``:

- ``rankN@`` limits the fault to the process whose variable RANK is N, and ``deviceN@`` to one device.
- POINT is the kind of call: ``malloc`` (a tensor's memory is allocated), ``segment`` (the caching allocator asks the
  device for memory), ``pinned`` (pinned memory is allocated), ``launch`` (a kernel is launched), ``kernel`` (a kernel
  runs), ``copy`` (a copy runs), ``memset`` (a memset runs), ``*`` (a kernel, a copy or a memset runs), ``stream`` (a
  stream is created), ``event`` (an event is created), ``ipc`` (memory of another process is opened), ``start`` (the
  device starts), or ``message`` (a collective, a send or a recv of torch.distributed).
- WHICH selects calls, counted from the injection on: ``3`` (the third call), ``3-5``, ``3+`` (the third and all later
  calls), ``>64M`` (calls for more than 64 MiB), ``p0.1`` (each call with the probability 0.1; an entry ``seed=7``
  before the fault in the list chooses other random calls), ``*`` (all calls, the default).
- EFFECT is what happens. The errors are ``=oom``, ``=illegal`` (an illegal memory access), ``=assert``, ``=failure``,
  ``=ecc``, ``=busy``, ``=driver``, ``=nodevice``. With a ``!``, as in ``=illegal!``, every later call of the process
  fails too, as after a sticky error of CUDA. ``=lost``: every later call for that device fails, until the fault is
  removed. ``=flip``: one copied bit is wrong. ``=drop``: a message is never sent, and its sender is not told.
  ``=kill``: the process ends with SIGKILL. ``~2ms``: the call begins 2 ms late. ``x2.5``: the call takes 2.5 times as
  long.

A queued kernel or copy fails as on CUDA: a later call that waits for it raises the error. ``OPENREG_FAULTS`` injects
faults for the whole process. In a program with one thread, the same faults happen in every run.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch

from torch_openreg.simulator import _bindings as _C
from torch_openreg.simulator._faults import ONCE, Fault, parse

__all__ = ["Count", "FaultWarning", "inject"]


_Function = TypeVar("_Function", bound=Callable[..., Any])


class FaultWarning(UserWarning):
    """The warning that a fault never happened, so the test has tested nothing."""


class Count(NamedTuple):
    """How many calls matched the fault with this ``text`` (``seen``), and how many calls it changed (``fired``)."""

    text: str
    seen: int
    fired: int


class inject(contextlib.ContextDecorator):
    """Injects the faults of ``program`` until the end of a block, or during each call of a decorated function.

    The calls of all threads are counted, and a fault can change any of them. Raises ValueError for a program that
    cannot be read; the message names the closest word. The end of the block waits for all devices, so that the
    faults of queued work happen in the block. If a fault made queued work fail and no call has raised this failure,
    the end of the block raises it. The end of the block, also by an exception, warns with FaultWarning for each fault
    that never happened; the warning names the line that calls ``inject``.

    Raises TypeError for a decorated generator function or ``async def``, whose body runs after the call, and for a
    decorated class, whose methods run after the call.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._faults: list[Fault] = parse(program)
        self._handles: list[int] = []
        self._counts: list[Count] = []
        self._place = _caller()

    def __call__(self, func: _Function) -> _Function:
        if inspect.isclass(func):
            raise TypeError(
                f"inject() does not decorate the class {func.__qualname__}: a call only makes an object, and the "
                "faults would be removed before its methods run. Decorate the methods."
            )
        if inspect.iscoroutinefunction(func) or inspect.isgeneratorfunction(func) or inspect.isasyncgenfunction(func):
            raise TypeError(
                f"inject() does not decorate {func.__qualname__}(): a call only makes a generator or a coroutine, "
                "and the faults would be removed before its body runs. Write `with inject(...):` in the body."
            )
        return super().__call__(func)

    def _recreate_cm(self) -> inject:
        other = type(self)(self.program)
        other._place = self._place
        return other

    @property
    def counts(self) -> list[Count]:
        """A Count for each fault, in the order of the program. Does not wait for queued work.

        The counts do not change after the end of the block.
        """
        if self._handles and not _C._isInBadFork():
            faults = zip(self._faults, self._handles, strict=True)
            self._counts = [Count(fault.text, *_C._count_fault(handle)) for fault, handle in faults]
        return self._counts

    def __enter__(self) -> inject:
        if self._handles:
            raise RuntimeError(f"The faults {self.program!r} are injected already: make another inject().")
        for fault in self._faults:
            self._handles.append(
                _C._inject_fault(
                    fault.points,
                    fault.device,
                    fault.calls,
                    fault.min_size,
                    fault.chance,
                    fault.action,
                    fault.error,
                    fault.duration,
                    fault.amount,
                    fault.text,
                )
            )
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if _C._isInBadFork():  # a child forked in the block: it has no device, and the faults belong to its parent
            self._handles.clear()
            return
        failure = self._wait()
        counts = self.counts
        for handle in self._handles:
            _C._remove_fault(handle)
        self._handles.clear()
        if kind is None and failure is not None:
            raise failure
        if kind is None or issubclass(kind, Exception):  # not if pytest skips the test, or the user interrupts it
            for count in counts:
                if count.fired == 0:
                    text = f"The fault {count.text!r} never fired: there were {count.seen} calls of its kind."
                    warnings.warn_explicit(text, FaultWarning, *self._place)

    def _wait(self) -> BaseException | None:
        """Waits for all devices. Returns the first failure that no call has raised yet.

        Returns None if a fault of the program is ``=lost`` or has a ``!``. Every wait fails after such a fault, so a
        failed wait says nothing new.
        """
        if not (torch.accelerator.is_available() and _is_started()):
            return None
        first: BaseException | None = None
        for index in range(torch.accelerator.device_count()):
            try:
                torch.accelerator.synchronize(index)
            except Exception as error:
                first = first or error
        return first if all(fault.duration == ONCE for fault in self._faults) else None


def _caller() -> tuple[str, int, str]:
    """The file, the line and the module of the innermost caller outside of this package and its pytest plugin."""
    frame = sys._getframe(1)
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("torch_openreg"):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, str(frame.f_globals.get("__name__"))


def _is_started() -> bool:
    from torch_openreg import openreg

    return openreg.is_initialized()


_of_environment: inject | None = None  # the faults of OPENREG_FAULTS


def _apply_environment() -> None:
    global _of_environment
    program = os.environ.get("OPENREG_FAULTS", "")
    if program.strip():
        _of_environment = inject(program)
        _of_environment.__enter__()
        atexit.register(_warn_at_exit)


def _never_fired(processes: Sequence[list[Count] | None]) -> list[str]:
    """A sentence for each fault of OPENREG_FAULTS that fired in no process.

    ``processes``: the counts of each process, of the same faults in the same order. None: the process died.
    """
    where = " in the processes that ended normally" if None in processes else ""
    texts = []
    for counts in zip(*filter(None, processes), strict=True):
        if not any(count.fired for count in counts):
            seen = [count.seen for count in counts if count.seen]
            calls = f"{sum(seen)} calls of its kind"
            if len(seen) > 1:
                calls += f" in {len(seen)} processes, at most {max(seen)} in one"
            texts.append(f"OPENREG_FAULTS: the fault {counts[0].text!r} never fired{where}: there were {calls}.")
    return texts


def _warn_at_exit() -> None:
    for text in _never_fired([_of_environment.counts if _of_environment else []]):
        print(text, file=sys.stderr)


def _environments_counts() -> list[Count]:
    """The counts of the faults of OPENREG_FAULTS in this process.

    Waits for all devices, as the end of an ``inject`` block does.
    """
    if _of_environment is None:
        return []
    if not _C._isInBadFork():
        _of_environment._wait()
    return _of_environment.counts


def _leave_the_warning_to_pytest() -> None:
    """The pytest plugin warns for all of its processes together, because a fault may fire in only some of them."""
    atexit.unregister(_warn_at_exit)


_apply_environment()
