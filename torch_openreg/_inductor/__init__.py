"""torch.compile on the device: PyTorch's C++ code generator, with kernels that launch their loops on the device.

No module of this package is imported before torch.compile needs it. ``torch_openreg._loader`` waits until a module
of PyTorch is imported:

  - After ``torch._dynamo.device_interface``, ``_device.py`` tells dynamo which devices there are.
  - After ``torch._dynamo``, ``_device.py`` lets dynamo trace the functions of ``torch.openreg`` about streams.
  - After ``torch._dynamo.variables.optimizer``, ``_device.py`` lets compiled optimizers keep their state on the device.
  - After ``torch._inductor.codegen.common``, ``register_with_inductor()`` waits for the first graph. Then
    ``_codegen.py`` registers the code generator.
  - After ``torch._inductor.compile_fx``, the first module of inductor that gets a graph, ``_differences.py`` replaces
    the functions of inductor that decide by the name of a device.

The type of the device is ``torch_openreg._identity.device_type``. This package does not repeat its name.
"""

import functools
from collections.abc import Callable
from types import ModuleType

from torch_openreg._inductor._upstream import CODE_GENERATORS
from torch_openreg._upstream import apply


def leave_out(trace_rules: ModuleType) -> None:
    """Lets dynamo end the graph before it calls a function of these modules; the program then calls the function.

    On CUDA, C functions do their work, which dynamo does not trace either.
    """
    trace_rules.add("torch_openreg.openreg.nvtx")


def register_with_inductor(_: ModuleType) -> None:
    """Registers the code generator when inductor first asks for the code generators of all devices.

    Inductor would find a code generator without a registration if ``torch.openreg`` had ``Scheduling``,
    ``PythonWrapperCodegen``, ``CppWrapperCodegen`` and ``WrapperFxCodegen``. But only a registration takes a
    configuration: ``_config.py``, which puts the version of torch_openreg into the key of inductor's cache.
    """
    apply(CODE_GENERATORS)


def register_before(register_others: Callable[[], None]) -> None:
    """Wraps inductor's init_backend_registration()."""
    _register()
    register_others()


@functools.cache
def _register() -> None:
    from torch_openreg._inductor import _codegen

    _codegen.register()
