"""The sanitizer finds races, reads of unwritten bytes, accesses out of bounds, and leaks. It names the lines of Python.

::

    with torch.openreg.sanitizer.enable("race", mode="report") as session:
        train()
    for report in session.reports:
        print(report)

Checks:

- ``race`` finds two accesses to one byte that nothing orders. At least one is a write, and they are on two streams, or
  on a stream and on the host. It also finds a tensor that is freed while another stream may use it, and pinned memory
  that the host reads or overwrites too early. The check compares the accesses with the order that events and streams
  give, and not with the times of a run. So it finds a race in every execution mode.
- ``init`` finds a kernel that computes with bytes that nobody has written since they were allocated.
- ``memory`` finds a kernel that writes past the end of a tensor's memory, or uses memory that was freed.
- ``leak`` finds what was allocated while the sanitizer was on and still exists at its end. For a whole process it finds
  what the program cannot reach any more, and memory that grows from step to step (``mark``).
- ``graph`` finds values that a replay of a graph does not see: a new input that nobody has copied into the captured
  one, and a number or a 0-dim CPU tensor that had another value at the capture.

``OPENREG_SANITIZER=race,init`` enables checks for the whole process, and ``pytest --openreg-sanitize=race,init`` for
each test. Findings that nothing has raised are printed when the process ends, and an exit status of 0 becomes 1. The
checks follow NVIDIA's compute-sanitizer and ``torch.cuda._sanitizer``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import torch

from torch_openreg.simulator import _bindings as _C
from torch_openreg.simulator import _frozen

__all__ = ["Access", "Error", "Report", "Session", "disable", "enable", "mark"]

_CHECKS = {"race": 1, "init": 2, "memory": 4, "leak": 8, "graph": 16}


@dataclass(frozen=True)
class Access:
    """One access of a report.

    ``operator`` is the name of the operator or of the kernel. For a copy or a fill that belongs to no operator, it
    is "memcpy" or "memset"; for a free "the last reference"; for an access of the host "the host", or a method of the
    tensor, such as "Tensor.numpy". ``action`` is "reads", "writes" or "frees". ``stream`` describes the stream in
    words. ``site`` is the line of Python, such as ``"train.py:12 in step"``. ``shape`` is the tensor's shape, empty if
    it is not known. ``bytes`` is the number of bytes from the first to the last, with the gaps of a strided tensor.

    In a report of a leak, ``action`` is "allocates" for memory and "makes" for a handle, such as a stream. ``operator``
    is the allocator, or the function of the device library. ``stream`` is the device of the memory, or "the host" for
    pinned memory; for a handle it is empty, and ``bytes`` is 0. In a report about a graph, ``action`` is "captures" for
    what a node uses, and "replays" for the call that replays the graph.
    """

    operator: str
    action: str
    stream: str
    site: str
    shape: tuple[int, ...]
    bytes: int


@dataclass(frozen=True)
class Report:
    """One finding. ``kind`` is the name of the check. ``str()`` of a report gives it in words."""

    kind: str
    accesses: tuple[Access, ...]
    text: str

    def __str__(self) -> str:
        return self.text


class Error(RuntimeError):
    """Raised for a finding of the sanitizer in the mode "raise". The attribute ``report`` is the Report."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


class Session:
    """The context manager that ``enable`` returns. The end of the block disables the sanitizer."""

    def __init__(self, checks: frozenset[str], mode: str) -> None:
        self.checks = checks
        self.mode = mode
        self._earlier: list[Report] = []  # until the session ended, or until another one last interrupted it
        self._raised: set[int] = set()  # the numbers of the reports that were raised
        self._runs = False

    @property
    def reports(self) -> list[Report]:
        """All reports so far, in the order in which they were found. Does not synchronise."""
        return self._earlier + (_findings() if self._runs else [])

    def write_json(self, path: str | os.PathLike[str]) -> None:
        """Writes the reports to a file: a list of objects with ``kind``, ``text`` and ``accesses``."""
        Path(path).write_text(json.dumps([asdict(report) for report in self.reports], indent=2) + "\n")

    def close(self) -> None:
        """Disables the sanitizer, or resumes the session that this one interrupted. May be called again.

        With the check "leak" it first looks for leaks, which collects garbage and waits for all devices. If such a wait
        fails, close() raises the failure of the device, and does not look for leaks. In the mode "raise" it raises
        Error for a finding that has not been raised yet.
        """
        if not (_sessions and _sessions[-1] is self):
            return
        self._finish()
        if self.mode == "raise" and (left := self._unraised()):
            raise Error(left[0])

    def _unraised(self) -> list[Report]:
        return [report for number, report in enumerate(self.reports) if number not in self._raised]

    def _raise_no_more(self) -> None:
        """Raises Error for a finding that has not been raised yet. From now on findings are only recorded."""
        _C._sanitizer_stop_raising()
        if left := self._unraised():
            raise Error(left[0])

    def _finish(self) -> None:
        _C._sanitizer_stop_raising()
        try:
            if "leak" in self.checks:
                _look_for_leaks()
        finally:  # a wait for the devices raises the failure of queued work
            self._end()

    def _end(self) -> None:
        self._interrupt()
        _sessions.pop()
        if _sessions:
            _sessions[-1]._run()

    def _run(self) -> None:
        # Waits for all devices, and raises if queued work failed or a device is lost. If an interrupted session cannot
        # be resumed because of this, the end of the next session within it resumes it.
        _frozen.forget()
        _C._sanitizer_start(sum(_CHECKS[check] for check in self.checks), self.mode == "raise")
        self._runs = True
        if self.checks & {"race", "init"}:
            _watch_readers()
        if "graph" in self.checks and (trees := sys.modules.get(_TREES)):
            check_kept_results(trees)

    def _interrupt(self) -> None:
        if self._runs:
            self._runs = False
            _unwatch_readers()
            _check_kept_results_as_before()
            _C._sanitizer_stop()
            self._earlier += _findings()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exc_info: object) -> None:
        if kind is None:
            self.close()
        elif _sessions and _sessions[-1] is self:
            with contextlib.suppress(Exception):  # the failure of a wait does not replace the program's exception
                self._finish()


_sessions: list[Session] = []  # the last one runs


def enable(*checks: str, mode: Literal["raise", "report"] = "raise") -> Session:
    """Enables the sanitizer until the end of a ``with`` block, or until ``disable()``.

    ``checks`` are "race", "init", "memory", "leak" and "graph", as several arguments or joined by commas (default: "race"). In
    the mode "raise" (the default) each finding raises ``Error``, and the work with the finding does not run. Some
    findings are about actions that cannot raise. The next work of the thread that made the finding, or the end of the
    block, raises such a finding. That a tensor was freed too early is found when its stream allocates memory again. If
    a queued kernel has written past the end of a tensor, the next work of any thread raises the finding, and so does
    ``synchronize()`` of a device, a stream or an event. In the mode "report" nothing raises, and ``session.reports``
    has the findings. In this mode two findings count as one if the lines and the operators of their accesses, and the
    line that allocated the memory, are the same. A session within another session interrupts that session. Raises
    ValueError for an unknown check or mode, and for no check.

    Waits for all devices. Memory that exists already counts as written, and is not reported as a leak.
    """
    names = frozenset(name.strip() for check in checks or ("race",) for name in check.split(",") if name.strip())
    if not names:
        raise ValueError(f"The sanitizer was given no check. There are {', '.join(_CHECKS)}.")
    for name in names:
        if name not in _CHECKS:
            raise ValueError(f"The sanitizer has no check {name!r}. There are {', '.join(_CHECKS)}.")
    if mode not in ("raise", "report"):
        raise ValueError(f"mode is {mode!r}, but must be 'raise' or 'report'.")
    session = Session(names, mode)
    if _sessions:
        _sessions[-1]._interrupt()
    _sessions.append(session)
    try:
        session._run()
    except BaseException:
        session._end()
        raise
    return session


def disable() -> None:
    """Ends the session that ``enable`` began last. The effect is that of the end of its ``with`` block."""
    if _sessions:
        _sessions[-1].close()


# Methods of a tensor that give the bytes of a CPU tensor to code that calls no operator, and whether this code may also
# write them. `__reduce_ex__` is for pickle, which may send the memory to another process, and for torch.save.
_READERS = {"numpy": True, "tolist": False, "__reduce_ex__": True}


def _watch_readers() -> None:
    """Makes the methods in _READERS tell the sanitizer what they read."""
    for name in _READERS:
        setattr(torch.Tensor, name, _telling(getattr(torch.Tensor, name)))


def _unwatch_readers() -> None:
    for name in _READERS:
        if original := getattr(torch.Tensor.__dict__.get(name), "_original", None):
            if original is getattr(torch._C.TensorBase, name, None):
                delattr(torch.Tensor, name)  # it is inherited
            else:
                setattr(torch.Tensor, name, original)


_TREES = "torch._inductor.cudagraph_trees"
_warmup: list[bool] = []  # PyTorch's setting before check_kept_results()


def check_kept_results(trees: ModuleType) -> None:
    """While the check "graph" runs, the graphs of torch.compile are never replayed: each call is a warm-up.

    PyTorch refuses to read a result whose memory a later call has taken only if that call was a warm-up or a recording.
    Replays do not look, and the result changes. The graphs of torch.compile need nothing else of the check: it is
    PyTorch that refreshes their inputs, and their numbers are constants or inputs.
    """
    if not _warmup and _sessions and "graph" in _sessions[-1].checks:
        _warmup.append(trees.config.triton.force_cudagraphs_warmup)
        trees.config.triton.force_cudagraphs_warmup = True


def _check_kept_results_as_before() -> None:
    if _warmup:
        sys.modules[_TREES].config.triton.force_cudagraphs_warmup = _warmup.pop()


def _telling(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def tell(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if type(self) in (torch.Tensor, torch.nn.Parameter) and self.is_cpu:
            _C._sanitizer_note_host_read(self, f"Tensor.{method.__name__}", _READERS[method.__name__])
        return method(self, *args, **kwargs)

    tell._original = method  # type: ignore[attr-defined]
    return tell


def _findings(first: int = 0, settles: bool = True) -> list[Report]:
    return [
        Report(kind, tuple(Access(*part) for part in parts), text)
        for kind, text, parts in _C._sanitizer_findings(first, settles)
    ]


def _make_error(number: int) -> Error:
    """The exception for the thread whose work was stopped. C++ calls this function."""
    session = _sessions[-1]
    session._raised.add(len(session._earlier) + number)
    return Error(_findings(number, settles=False)[0])


def _look_for_leaks() -> None:
    from torch_openreg import openreg

    if _growth is not None:
        _growth.look_for_idle_memory()
        _growth.look_for_cycles()
    gc.collect()
    if openreg.is_initialized():
        for index in range(torch.accelerator.device_count()):
            torch.accelerator.synchronize(index)
        openreg.memory.empty_cache()  # frees also the events that blocks wait for
        torch.accelerator.empty_host_cache()
    _C._sanitizer_look_for_leaks()


def _apply_environment() -> None:
    checks = os.environ.get("OPENREG_SANITIZER", "")
    if checks.strip():
        if "leak" in enable(checks).checks:
            _watch_growth()
        _C._sanitizer_fail_at_exit(False)
        atexit.register(_report_at_exit)


def _end_all(looks_for_leaks: bool = True) -> list[str]:
    """Ends all sessions. Returns in words what no exception has said."""
    texts = []
    while _sessions and not _C._isInBadFork():  # the parent reports what happened before a fork
        session = _sessions[-1]
        if not looks_for_leaks:
            session.checks -= {"leak"}
        try:
            session._finish()
        except Exception as error:
            texts.append(f"OPENREG_SANITIZER: the end of the process cannot wait for the devices: {error}")
        left = _leaks_at_exit(session._unraised())
        texts += [f"OPENREG_SANITIZER: {report}" for report in [*left, *_grown()]]
    return texts


def _leaks_at_exit(reports: list[Report]) -> list[Report]:
    """The reports without the leaks that are none at the end of a process: what the program can still reach.

    Tensors may be in global variables, modules and caches, and so may be torch.Event. Memory is a leak if the process
    has no tensor that could own it. Whatever the program made with functions of the device library is a leak.
    """
    may_be_owned = _owns_memory()
    return [
        report
        for report in reports
        if report.kind != "leak"
        or (report.accesses[0].action == "allocates" and not may_be_owned)
        or (report.accesses[0].action == "makes" and not report.accesses[0].operator.startswith("orEventCreate"))
    ]


def _owns_memory() -> bool:
    """Whether a tensor of the device, or in pinned memory, exists."""
    for value in gc.get_objects():
        # Not isinstance(), which asks an object that pretends to be another.
        if issubclass(type(value), torch.Tensor) and (not value.is_cpu or value.is_pinned()):
            return True
    return torch.distributed.is_available() and torch.distributed.is_initialized()


_growth: Any = None


def mark() -> None:
    """Ends a step of the program, so that ``OPENREG_SANITIZER=leak`` finds memory that grows from step to step.

    Each ``step()`` of an optimizer ends a step too. Without ``OPENREG_SANITIZER=leak`` the call has no effect. Does not
    wait.
    """
    if _growth is not None:
        _growth.mark()


def _watch_growth() -> None:
    global _growth
    from torch_openreg.simulator._growth import Growth

    _growth = Growth()


# What a line may leave behind (_growth.py), in words, and the way out.
_GROWING = {
    "blocks": (
        "the memory that one line allocates grows from step to step: {counts} blocks after the steps {steps}.",
        "Drop the references to them: lists and caches that grow, closures, reference cycles, stored graphs.",
    ),
    "nodes of autograd": (
        "the graph that the tensors of one line keep grows from step to step: {counts} nodes of autograd after the "
        "steps {steps}.",
        "Keep loss.detach() or loss.item() instead.",
    ),
    "reference cycles": (
        "nothing but Python's garbage collector frees the memory that one line allocates: the program has dropped it "
        "in {counts} reference cycles.",
        "Break the cycles: with weakref, or without an attribute that leads back to its own object.",
    ),
    "idle blocks": (
        "the memory that one line allocates grows with each round of a loop: {counts} blocks of {steps} rounds are "
        "kept, and nothing uses them after their round.",
        "Drop the references to them: lists and caches that grow, closures, reference cycles, stored graphs.",
    ),
}


def _grown() -> list[Report]:
    """A report for each line whose memory piles up."""
    global _growth
    growth, _growth = _growth, None
    if growth is None:
        return []
    growth.close()
    reports = []
    for each in growth.found():
        name = "the allocator of pinned memory" if each.place == "the host" else "the device allocator"
        site = each.site or "an unknown line"
        what, advice = _GROWING[each.what]
        text = (
            f"leak: {what.format(counts=_listed(each.counts), steps=_listed(each.steps))}\n"
            f"  {name} allocates {each.bytes} bytes on {each.place}, at {site}\n"
            f"  {advice}"
        )
        reports.append(Report("leak", (Access(name, "allocates", each.place, site, (), each.bytes),), text))
    return reports


def _listed(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, numbers[:6])) + (", ..." if len(numbers) > 6 else "")


def _report_at_exit() -> None:
    for text in _end_all():
        print(text, file=sys.stderr)
        _C._sanitizer_fail_at_exit(True)


_apply_environment()
