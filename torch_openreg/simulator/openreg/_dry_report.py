"""Runs within the program of the command dry: writes what memory the process used, when it ends.

`import torch` imports this module if the command has set its variable. The process of the program writes; its workers do
not, because their variable is removed.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import weakref
from types import TracebackType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from torch_openreg import _C
from torch_openreg.openreg import _dry_changes, _out_of_memory, dry, memory, models  # type: ignore[attr-defined]
from torch_openreg.simulator import _bindings

_report: dict[str, Any] = {"error": None}
_step_ends: list[float] = []  # in simulated seconds
_around_steps: list[dry.Clock] = []  # after the first step, and after the last one
_optimizer: weakref.ref[torch.optim.Optimizer] | None = None  # the first that made a step


def _note_step(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
    """A step of the program ends with a step of its optimizer: of the first one, if it has several."""
    global _optimizer
    _optimizer = _optimizer or weakref.ref(optimizer)
    if _optimizer() is optimizer and (now := dry.clock()):
        _step_ends.append(now.seconds)
        _around_steps[1:] = [now]


def _time() -> dict[str, Any] | None:
    """The script's simulated time and that of its steps. None: the device model has no rates."""
    total = dry.clock()
    if total is None:
        return None
    steps = _around_steps[1].since(_around_steps[0]) if len(_step_ends) > 1 else None
    return {
        "step_ends": _step_ends,
        "total": total._asdict(),
        "steps": steps and steps._asdict(),
    }


def _refused_communicator() -> dict[str, Any] | None:
    """What ``take_first()`` gives, of a communicator that got no memory."""
    if refused := _bindings._dry_refused_communicator():
        return dict(zip(("line", "device", "size", "free"), refused, strict=True))
    return None


def _has_compiled() -> bool:
    """Whether Inductor has generated code in this process."""
    codecache = sys.modules.get("torch._inductor.codecache")
    return bool(codecache and codecache.PyCodeCache.modules)


def start(folder: str) -> None:
    memory._record_memory_history(stacks="python", context="alloc")
    _out_of_memory.watch()
    register_optimizer_step_post_hook(_note_step)
    previous = sys.excepthook

    def note(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        _report["error"] = {"type": kind.__name__, "text": str(error)}
        previous(kind, error, traceback)

    sys.excepthook = note

    def write() -> None:
        if _C._isInBadFork():
            return
        devices = []
        communicators = _bindings._dry_communicators()
        if torch._C._accelerator_isAllocatorInitialized():
            for index in range(_C._get_device_count()):
                stats = memory.memory_stats(index)
                if stats.get("allocation.all.allocated", 0) or stats.get("num_ooms", 0):
                    devices.append(
                        {
                            "index": index,
                            "total": torch.accelerator.get_memory_info(index)[1],
                            "context": models.properties().get("context_memory", 0),
                            "groups": communicators.get(index, (0, 0))[0],
                            "communicators": communicators.get(index, (0, 0))[1],
                            "peak_allocated": stats["allocated_bytes.all.peak"],
                            "peak_reserved": stats["reserved_bytes.all.peak"],
                            "alloc_retries": stats["num_alloc_retries"],
                        }
                    )
            memory._dump_snapshot(os.path.join(folder, "snapshot.pickle"))
        _report["out_of_memory"] = _out_of_memory.take_first() or _refused_communicator()
        _report["devices"] = devices
        _report["time"] = _time()
        _report["changed"] = _dry_changes.changed
        _report["compiled"] = _has_compiled()
        _report["assumed"] = [each._asdict() for each in dry.assumed_reads()]
        with open(os.path.join(folder, "report.json"), "w") as file:
            json.dump(_report, file)

    atexit.register(write)


if _folder := os.environ.get("OPENREG_DRY_REPORT", ""):
    del os.environ["OPENREG_DRY_REPORT"]  # not for the processes that the program starts
    start(_folder)
