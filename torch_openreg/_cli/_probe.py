"""The program that the doctor runs in a separate process: `import torch` with chosen backends.

A backend may hang, print anything, close our files or kill the process. So the probe writes each step to a file before
the step begins, and the last line tells the doctor where the process ended. The probe itself does not import
torch_openreg. It imports torch only after it has replaced the function with which torch finds backends.
"""

from __future__ import annotations

import faulthandler
import importlib
import importlib.metadata
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

_read_entry_points: Any = importlib.metadata.entry_points


class Probe:
    """One run of the probe.

    ``request`` has the ``folder`` for the output, the ``path`` for ``sys.path``, the ``timeout`` in seconds for a
    backend's step, ``first``, which is the module to import, and ``backends``, which are the (name, value) pairs that
    torch shall see (None: all).
    """

    def __init__(self, request: dict[str, Any]) -> None:
        self.request = request
        self.events: TextIO = (Path(request["folder"]) / "events").open("w")
        self.stack: TextIO = (Path(request["folder"]) / "stack").open("w")

    def tell(self, step: str, **facts: Any) -> None:
        self.events.write(json.dumps({"step": step, **facts}) + "\n")
        self.events.flush()
        # faulthandler's timer needs no Python thread, so it works while the backend holds the interpreter. A step that
        # does not belong to a backend gets 60 seconds more.
        limit = self.request["timeout"] + (0 if step in ("load", "call", "is_available") else 60)
        faulthandler.dump_traceback_later(limit, exit=True, file=self.stack)

    def run(self) -> None:
        sys.path[:] = self.request["path"]
        faulthandler.enable(self.stack)
        importlib.metadata.entry_points = self.entry_points
        start = time.perf_counter()
        try:
            self.tell(f"import {self.request['first']}")
            importlib.import_module(self.request["first"])
            self.tell("import torch")
            import torch

            self.tell("imported", seconds=time.perf_counter() - start)
            self.tell("end", privateuse1=claimed(torch), device=device(), facts=facts())
        except BaseException as error:  # also SystemExit
            self.tell("error", **describe(error))
        # Ends the process without the exit handlers of other packages.
        os._exit(0)

    def entry_points(self, **parameters: Any) -> Any:
        """Like importlib.metadata.entry_points, but the call of torch gets only the backends of ``request``."""
        points = _read_entry_points(**parameters)
        if parameters != {"group": "torch.backends"}:
            return points
        wanted = self.request["backends"]
        return [Watched(point, self) for point in points if wanted is None or [point.name, point.value] in wanted]

    def ask(self, module: Any) -> None:
        """Tells whether the device of ``module`` is available. If not, and if ``_lazy_init`` raises, also the error.

        Does nothing if ``module`` has no function is_available.
        """
        if not callable(getattr(module, "is_available", None)):
            return
        self.tell("is_available", module=str(getattr(module, "__name__", module)))
        available = bool(module.is_available())
        self.tell("available", available=available)
        if not available and hasattr(module, "_lazy_init"):
            try:
                module._lazy_init()
            except Exception as error:
                self.tell("unavailable", **describe(error))


class Watched:
    """An entry point that tells the probe when it is loaded and called, and what the load and the call changed."""

    def __init__(self, point: importlib.metadata.EntryPoint, probe: Probe) -> None:
        self.point = point
        self.probe = probe

    def __getattr__(self, name: str) -> Any:
        return getattr(self.point, name)

    def load(self) -> Callable[[], Any]:
        import torch

        before = set(sys.modules), libraries(), set(vars(torch))
        start = time.perf_counter()
        self.probe.tell("load", backend=self.point.name)
        function = self.point.load()

        def call() -> Any:
            self.probe.tell("call", backend=self.point.name)
            result = function()
            if (
                self.probe.request["backends"] is not None
                and torch._logging._init_logs.__module__ == function.__module__
            ):
                # This backend waits for the others, which are not in this process. Its load belongs to this step.
                result = sys.modules[function.__module__]._load()
            self.probe.tell(
                "loaded",
                backend=self.point.name,
                seconds=time.perf_counter() - start,
                modules=sorted(set(sys.modules) - before[0]),
                libraries=sorted(libraries() - before[1]),
                privateuse1=claimed(torch),
            )
            modules = [getattr(torch, name) for name in sorted(set(vars(torch)) - before[2])]
            # A backend may add no module to torch, but return one.
            for module in modules if result is None or result in modules else [*modules, result]:
                self.probe.ask(module)
            return result

        return call


def claimed(torch: Any) -> str | None:
    name = torch._C._get_privateuse1_backend_name()
    return None if name == "privateuseone" else name


def device() -> str | None:
    """The type of torch_openreg's devices in this process, or None if there are none."""
    identity, failed = (sys.modules.get(f"torch_openreg.{name}") for name in ("_identity", "_failure"))
    return identity.device_type if identity and not (failed and failed.failure) else None


def facts() -> dict[str, Any]:
    """What else there is to say about these devices."""
    identity = sys.modules.get("torch_openreg._identity")
    return dict(identity.facts) if identity else {}


def libraries() -> set[str]:
    """The shared libraries that this process has opened."""
    return set(re.findall(r"(/.*\.so(?:\.[\d.]+)?)$", Path("/proc/self/maps").read_text(), re.MULTILINE))


def describe(error: BaseException) -> dict[str, Any]:
    """The exception and its causes, the outermost first, and the modules that were being imported."""
    chain = [error]
    while following := chain[-1].__cause__ or (None if chain[-1].__suppress_context__ else chain[-1].__context__):
        chain.append(following)
    modules: list[str] = []
    for link in chain:
        for name in module_names(link.__traceback__):
            if name != "__main__" and not name.startswith("importlib") and modules[-1:] != [name]:
                modules.append(name)
    return {
        "chain": [{"type": type(link).__name__, "message": str(link), "name": name_of(link)} for link in chain],
        "importing": modules,
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__)),
    }


def name_of(error: BaseException) -> str | None:
    name = getattr(error, "name", None)
    return name if isinstance(name, str) else None


def module_names(trace: TracebackType | None) -> list[str]:
    names = []
    while trace is not None:
        names.append(str(trace.tb_frame.f_globals.get("__name__")))
        trace = trace.tb_next
    return names


if __name__ == "__main__":
    Probe(json.loads(sys.argv[1])).run()
