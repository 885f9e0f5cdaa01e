"""Inductor's code generator for the device: PyTorch's loops in C++ for the CPU, and kernels that launch the loops.

No module of this package is imported before torch.compile needs it. ``torch_openreg._loader`` waits until a module
of PyTorch is imported (torch_openreg/simulator/_compiler.py):

  - After ``torch._dynamo.device_interface``, ``register_convolutions()`` tells inductor the layouts of their results.
  - After ``torch._inductor.codegen.common``, ``register_with_inductor()`` waits for the first graph. Then
    ``_codegen.py`` registers the code generator.
  - After ``torch._inductor.compile_fx``, the first module of inductor that gets a graph, ``_differences.py`` replaces
    the functions of inductor that decide by the name of a device.

The type of the device is ``torch_openreg._identity.device_type``. This package does not repeat its name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_openreg._identity import device_type
from torch_openreg._upstream import apply
from torch_openreg.simulator.inductor._upstream import CODE_GENERATORS, CONVOLUTIONS


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
    from torch_openreg.simulator.inductor import _codegen

    _codegen.register()


# LITERALINCLUDE START: CONVOLUTIONS
def register_convolutions(_: ModuleType) -> None:
    """Tells inductor the layouts of a convolution's results, which the CPU's kernels choose.

    PyTorch does not know that this device runs the CPU's kernels. So the convolution of fake tensors is computed with
    fake tensors on the CPU.
    """
    apply(CONVOLUTIONS)


def fake_convolution(original: Any, fake_mode: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
    device = args[0].fake_device
    if device.type != device_type:
        return original(fake_mode, operator, *args, **kwargs)

    def on(device: torch.device) -> Any:
        return lambda each: torch.empty_strided(each.size(), each.stride(), dtype=each.dtype, device=device)

    with fake_mode:
        args, kwargs = pytree.tree_map_only(torch.Tensor, on(torch.device("cpu")), (args, kwargs))
        return pytree.tree_map_only(torch.Tensor, on(device), operator(*args, **kwargs))


# LITERALINCLUDE END: CONVOLUTIONS
