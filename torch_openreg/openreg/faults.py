"""Faults on demand: what a test makes go wrong on the device, to see what the program does then.

::

    with torch.openreg.faults.inject("malloc:3=oom"):
        train()  # its third tensor on the device gets "out of memory"

A program of faults is a list, separated by semicolons, of ``[rankN@][deviceN@]POINT[:WHICH]EFFECT``:

- POINT: ``malloc`` (a tensor's memory), ``segment`` (what the caching allocator asks of the device), ``pinned``,
  ``kernel``, ``copy``, ``memset``, ``stream`` and ``event`` (their creation), ``ipc`` (another process's memory is
  opened), ``start`` (of the device), ``message`` (a collective, a send or a recv of torch.distributed), or ``*``: every
  kernel, copy and memset. ``rankN@`` is for the process whose variable RANK is N.
- WHICH: ``3`` (the third call), ``3-5``, ``3+``, ``>64M`` (of more than 64 MiB), ``p0.1`` (each with the probability
  0.1; the part ``seed=7`` before the fault chooses another sequence), ``*`` (all, the default). Calls are counted from
  the injection on.
- EFFECT: ``=oom``, ``=illegal`` (an illegal memory access), ``=assert``, ``=failure``, ``=ecc``, ``=busy``,
  ``=driver``, ``=nodevice``; with ``!`` the error stays for the process, as CUDA's sticky errors do. ``=lost``: from
  then on every call for that device fails, until the fault is removed. ``=flip``: one bit that a copy wrote is wrong.
  ``=drop``: a message is never sent, and its sender is not told. ``=kill``: the process ends with SIGKILL.
  ``~2ms``: late. ``x2.5``: slower by that factor.

A kernel or copy that runs in the queue fails as CUDA's do: the error is raised by a later call that waits for it.
``OPENREG_FAULTS`` injects faults for the whole process. If a program has one thread, the same faults happen in every
run.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import warnings
from typing import NamedTuple

import torch

from torch_openreg import _C
from torch_openreg._faults import ONCE, Fault, parse

__all__ = ["Count", "FaultWarning", "inject"]


class FaultWarning(UserWarning):
    """A fault never fired, so the test has tested nothing."""


class Count(NamedTuple):
    """What became of a fault: ``text`` as it was written, the calls that matched, and those that it changed."""

    text: str
    seen: int
    fired: int


class inject(contextlib.ContextDecorator):
    """Injects the faults of ``program`` for a block, or for each call of a function that it decorates.

    ValueError for a program that cannot be read; the message names the closest words. The end of the block waits for
    the device, so that queued work meets its faults, and raises a failure that was injected into queued work and that
    nobody was told of. It warns with FaultWarning for each fault that never fired.
    """

    def __init__(self, program: str) -> None:
        self.program = program
        self._faults: list[Fault] = parse(program)
        self._handles: list[int] = []
        self._counts: list[Count] = []

    def _recreate_cm(self) -> inject:
        return type(self)(self.program)

    @property
    def counts(self) -> list[Count]:
        """A Count for each fault, in their order: now, or at the end of the block."""
        if self._handles:
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
        failure = self._wait()
        counts = self.counts
        for handle in self._handles:
            _C._remove_fault(handle)
        self._handles.clear()
        if kind is not None:
            return
        if failure is not None:
            raise failure
        for count in counts:
            if count.fired == 0:
                warnings.warn(
                    f"The fault {count.text!r} never fired: it met {count.seen} calls that match.",
                    FaultWarning,
                    stacklevel=2,
                )

    def _wait(self) -> BaseException | None:
        """Waits for all devices. The failure of work that nobody was told of; not that of a device that stays lost."""
        if not (torch.accelerator.is_available() and _is_started()):
            return None
        first: BaseException | None = None
        for index in range(torch.accelerator.device_count()):
            try:
                torch.accelerator.synchronize(index)
            except Exception as error:
                first = first or error
        return first if all(fault.duration == ONCE for fault in self._faults) else None


def _is_started() -> bool:
    from torch_openreg import openreg

    return openreg.is_initialized()


def _apply_environment() -> None:
    program = os.environ.get("OPENREG_FAULTS", "")
    if program.strip():
        faults = inject(program)
        faults.__enter__()
        atexit.register(_warn_at_exit, faults)


def _warn_at_exit(faults: inject) -> None:
    for count in faults.counts:
        if count.fired == 0:
            print(f"OPENREG_FAULTS: the fault {count.text!r} never fired: it met {count.seen} calls that match.")


_apply_environment()
