"""Triton for the device: a driver, and kernels that Triton's own interpreter runs on device memory.

Nothing compiles Triton for the device. With ``TRITON_INTERPRET=1``, which ``OPENREG_TRITON=interpret`` sets, Triton
runs kernels in Python on the host (``_interpreter.py``). Without it, a launch raises an error that names the variable.

The driver is not an entry point of the group ``triton.backends``: Triton imports all of these whenever it is imported,
in programs without this device too, and an entry point that fails makes ``import triton`` fail. So the driver is added
to Triton's table when Triton is imported in a process that has the device.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Any, NoReturn

from torch_openreg._identity import identity
from torch_openreg._upstream import apply
from torch_openreg.simulator.triton._upstream import AUTOTUNER, INTERPRETER, LAUNCHES

INTERPRET = "TRITON_INTERPRET"  # a variable of Triton
NO_COMPILER = (
    f"Kernels of Triton are not compiled for {identity.one}. Triton's interpreter runs them: set TRITON_INTERPRET=1, or "
    "OPENREG_TRITON=interpret, before the program starts."
)


def interpret_if_asked(_: ModuleType) -> None:
    """Obeys ``OPENREG_TRITON=interpret``. Triton decides at each ``@triton.jit``, and has such functions itself."""
    if os.environ.get("OPENREG_TRITON") == "interpret":
        if "triton.language" in sys.modules and os.environ.get(INTERPRET) != "1":
            from torch_openreg._failure import warn

            warn(
                "OPENREG_TRITON=interpret has no effect, because triton was imported before torch. Import torch first, "
                "or set TRITON_INTERPRET=1."
            )
        os.environ[INTERPRET] = "1"


def leave_out(trace_rules: ModuleType) -> None:
    """Lets dynamo end the graph before a launch, which is Python code here. The program then launches the kernel."""
    if importlib.util.find_spec("triton"):
        trace_rules.add("triton.runtime.interpreter")


def patch_launches(_: ModuleType) -> None:
    apply(LAUNCHES)


def patch_interpreter(_: ModuleType) -> None:
    apply(INTERPRETER)


def patch_autotuner(_: ModuleType) -> None:
    apply(AUTOTUNER)


def refuse(*args: object, **kwargs: object) -> NoReturn:
    raise NotImplementedError(NO_COMPILER)


def launch(original: Any, self: Any, *args: Any, warmup: bool, **kwargs: Any) -> Any:
    """Wraps JITFunction.run(). A kernel can be compiled (``warmup``), as far as Triton has a compiler for the target."""
    if not warmup:
        refuse()
    return original(self, *args, warmup=warmup, **kwargs)
