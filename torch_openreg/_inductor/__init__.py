"""torch.compile on the device: PyTorch's C++ code generator, with kernels that pass the device's door.

Nothing here is imported before torch.compile needs it. ``torch_openreg._loader`` waits for two modules of PyTorch:

  - ``torch._dynamo.device_interface``: then ``_device.py`` tells dynamo which devices there are.
  - ``torch._inductor.codegen.common``: then ``register_with_inductor()`` waits for the first graph, and ``_codegen.py``
    registers what is generated, and ``_differences.py`` replaces what inductor decides by the name of a device.

The device has the type ``torch_openreg._loader.device_type``; no name of it is written here.
"""

import functools
from types import ModuleType


def register_with_inductor(common: ModuleType) -> None:
    """Registers the code generator when inductor first asks for those of all devices.

    Inductor finds one by itself if ``torch.openreg`` has ``Scheduling``, ``PythonWrapperCodegen``,
    ``CppWrapperCodegen`` and ``WrapperFxCodegen``. That way registers no configuration, with which our version comes
    into the key of the cache.
    """
    register_others = common.init_backend_registration

    @functools.cache
    def init_backend_registration() -> None:
        from torch_openreg._inductor import _codegen

        _codegen.register()
        register_others()

    common.init_backend_registration = init_backend_registration  # type: ignore[attr-defined]
