"""torch.compile on the device: PyTorch's C++ code generator, with kernels that pass the device's door.

Nothing here is imported before torch.compile needs it. ``torch_openreg._loader`` waits for the import of modules of
PyTorch:

  - After ``torch._dynamo.device_interface``, ``_device.py`` tells dynamo which devices there are.
  - After ``torch._dynamo``, ``_device.py`` lets dynamo trace the functions of ``torch.openreg`` about streams.
  - After ``torch._inductor.codegen.common``, ``register_with_inductor()`` waits for the first graph. Then
    ``_codegen.py`` registers the code generator.
  - After ``torch._inductor.compile_fx``, which every graph for inductor comes to first, ``_differences.py`` replaces
    the functions of inductor that decide by the name of a device.

The device has the type ``torch_openreg._environment.device_type``; no name of it is written here.
"""

import functools
from types import ModuleType


def register_with_inductor(common: ModuleType) -> None:
    """Registers the code generator when inductor first asks for the code generators of all devices.

    Inductor finds a code generator by itself if ``torch.openreg`` has ``Scheduling``, ``PythonWrapperCodegen``,
    ``CppWrapperCodegen`` and ``WrapperFxCodegen``. But that way registers no configuration, and the configuration puts
    our version into the key of inductor's cache.
    """
    register_others = common.init_backend_registration

    @functools.cache
    def init_backend_registration() -> None:
        from torch_openreg._inductor import _codegen

        _codegen.register()
        register_others()

    common.init_backend_registration = init_backend_registration  # type: ignore[attr-defined]
