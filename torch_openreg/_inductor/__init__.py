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

The type of the device is ``torch_openreg._environment.device_type``. This package does not repeat its name.
"""

import functools
from types import ModuleType


def register_with_inductor(common: ModuleType) -> None:
    """Registers the code generator when inductor first asks for the code generators of all devices.

    Inductor would find a code generator without a registration if ``torch.openreg`` had ``Scheduling``,
    ``PythonWrapperCodegen``, ``CppWrapperCodegen`` and ``WrapperFxCodegen``. But only a registration takes a
    configuration: ``_config.py``, which puts the version of torch_openreg into the key of inductor's cache.
    """
    register_others = common.init_backend_registration

    @functools.cache
    def init_backend_registration() -> None:
        from torch_openreg._inductor import _codegen

        _codegen.register()
        register_others()

    common.init_backend_registration = init_backend_registration  # type: ignore[attr-defined]
