"""The device for dynamo and inductor, and the random-number state of checkpointed regions.

This module is not imported before torch.compile needs it. ``torch_openreg._loader`` waits until a module of PyTorch is
imported:

  - After ``torch._dynamo.device_interface``, ``register()`` tells dynamo which devices there are.
  - After ``torch._dynamo``, ``make_traceable()`` lets dynamo trace the functions of ``torch.openreg`` about streams.
  - After ``torch._dynamo.variables.optimizer``, ``make_capturable()`` lets compiled optimizers keep their state on the
    device.
  - After ``torch._inductor.codegen.common``, ``refuse_default_backend()`` tells inductor that the device has no code
    generator. A sub-package that has one registers it later, in place of this registration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
from torch._C import DispatchKey
from torch._dynamo import device_interface as interfaces
from torch._functorch._aot_autograd.utils import register_graphsafe_rng_device_type
from torch._prims import rng_prims
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode, track_tensor_tree
from torch.utils import _pytree as pytree

from torch_openreg import _C, _upstream, openreg
from torch_openreg._identity import device_type


# LITERALINCLUDE START: DEVICE INTERFACE
class OpenRegInterface(interfaces.DeviceInterface):
    """The device, with the functions that dynamo and inductor call for each device."""

    device = openreg.device
    Event = openreg.Event
    Stream = openreg.Stream

    class Worker:
        """For inductor's compile processes, which must not start the device. The parent sends the properties."""

        @staticmethod
        def set_device(device: int) -> None:
            interfaces.caching_worker_current_devices[device_type] = device

        @staticmethod
        def current_device() -> int:
            chosen = interfaces.caching_worker_current_devices.get(device_type)
            return openreg.current_device() if chosen is None else chosen

        @staticmethod
        def get_device_properties(device: Any = None) -> Any:
            known = interfaces.caching_worker_device_properties
            if device_type not in known:
                known[device_type] = [openreg.get_device_properties(i) for i in range(openreg.device_count())]
            if device is None:
                return known[device_type][OpenRegInterface.Worker.current_device()]
            return known[device_type][openreg._get_device_index(device)]

    current_device = staticmethod(openreg.current_device)
    set_device = staticmethod(openreg.set_device)  # type: ignore[assignment]
    device_count = staticmethod(openreg.device_count)
    is_available = staticmethod(openreg.is_available)
    exchange_device = staticmethod(_C._exchangeDevice)
    maybe_exchange_device = staticmethod(_C._exchangeDevice)
    # Dynamo traces `with stream(s)` only if the interface has the very function of the type's own module.
    stream = staticmethod(torch.get_device_module(device_type).stream)
    current_stream = staticmethod(torch.get_device_module(device_type).current_stream)
    set_stream = staticmethod(openreg.set_stream)
    get_raw_stream = staticmethod(_C._current_stream_handle)  # type: ignore[assignment]
    synchronize = staticmethod(openreg.synchronize)
    memory_allocated = staticmethod(openreg.memory_allocated)
    is_bf16_supported = staticmethod(openreg.is_bf16_supported)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        openreg.set_stream(torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def is_gpu() -> bool:
        return False  # since 2.15, inductor would append the device to its GPU_TYPES, whose code is Triton

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        return ""  # kernels are built for the host's processor, and inductor knows that processor


# LITERALINCLUDE END: DEVICE INTERFACE


# LITERALINCLUDE START: TRACEABLE
def make_traceable(_: ModuleType) -> None:
    """Lets dynamo trace the functions of ``torch.openreg`` that it traces in ``torch.cuda``.

    These functions call C++ functions, which dynamo cannot trace. The substitutes below call functions that dynamo
    traces. For ``current_device_index()`` dynamo makes a guard: with another current device it compiles again.
    """
    # Not imported at the top of this file: the file is imported while dynamo itself is imported only in part.
    from torch._dynamo.variables import ctx_manager

    @torch.compiler.substitute_in_graph(_C._get_device, skip_signature_check=True)
    def _get_device() -> int:
        return torch.accelerator.current_device_index()

    @torch.compiler.substitute_in_graph(_C._check_device_index, skip_signature_check=True)
    def _check_device_index(device: int) -> None:
        pass  # the operator that uses the device checks the index

    @torch.compiler.substitute_in_graph(openreg.stream)
    def stream(stream: torch.Stream | None) -> Any:
        return contextlib.nullcontext() if stream is None else stream

    @torch.compiler.substitute_in_graph(openreg.synchronize)
    def synchronize(device: Any = None) -> None:
        # Without an index, dynamo's substitute for torch.accelerator.synchronize() waits for device 0.
        torch.accelerator.synchronize(openreg._get_device_index(device, optional=True))

    @torch.compiler.substitute_in_graph(_C._isInBadFork, skip_signature_check=True)
    def _is_in_bad_fork() -> bool:
        return False  # a process in which the device cannot be used raises at the first operator

    # Dynamo calls these functions when it compiles, and takes the results as constants, as for torch.cuda's properties.
    for function in (openreg.device_count, openreg.get_device_properties):
        torch.compiler.assume_constant_result(function)

    class DeviceVariable(ctx_manager.GenericDeviceVariable):
        """What dynamo traces for ``with torch.openreg.device(...)``."""

        _exchange_fn = staticmethod(torch._C._accelerator_exchangeDevice)
        _maybe_exchange_fn = staticmethod(torch._C._accelerator_maybeExchangeDevice)
        _get_device_index_fn = staticmethod(openreg._get_device_index)

        def module_name(self) -> str:
            return "torch.openreg"

        def python_type(self) -> type:
            return openreg.device

    ctx_manager.register_device_context_manager(openreg.device, DeviceVariable)


# LITERALINCLUDE END: TRACEABLE


def make_capturable(_: ModuleType) -> None:
    """Lets a compiled optimizer keep its state on the device, as on CUDA."""
    _upstream.apply(_upstream.OPTIMIZERS)


class _NoCodeGenerator:
    """Stands where inductor looks for the device's code generator. Every use raises."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(
            f'torch.compile has no code generator for device "{device_type}": use torch.compile(backend="aot_eager").'
        )

    def __call__(self, *arguments: Any) -> Any:
        return self.code


def refuse_default_backend(common: ModuleType) -> None:
    """Lets inductor say that it has no code generator for the device. Otherwise it raises KeyError."""
    none = _NoCodeGenerator()
    common.register_backend_for_device(device_type, none, none, none, none)


def leave_out(trace_rules: ModuleType) -> None:
    """Lets dynamo end the graph before it calls a function of these modules; the program then calls the function.

    On CUDA, C functions do their work, which dynamo does not trace either.
    """
    trace_rules.add("torch_openreg.openreg.nvtx")


def set_capturable(original: Any, self: Any, tx: Any) -> None:
    """Wraps OptimizerVariable._set_capturable(), and does the same for this device."""
    for group in self.value.param_groups:
        if "capturable" in group and all(
            each.device.type == device_type and each not in self.value.state for each in group["params"]
        ):
            group["capturable"] = True
    original(self, tx)


def register(_: ModuleType) -> None:
    """Registers the device with dynamo, under its type and under the name of each device."""
    interfaces.get_registered_device_interfaces()  # registers PyTorch's, of which one may have our type
    interfaces.register_interface_for_device(device_type, OpenRegInterface)
    for index in range(openreg.device_count()):
        interfaces.register_interface_for_device(f"{device_type}:{index}", OpenRegInterface)


# LITERALINCLUDE START: RNG STATE
def register_rng_state(_: ModuleType) -> None:
    """Makes a checkpointed region draw the same random numbers again when the backward computes it again.

    PyTorch does this in two ways: with a generator whose state is exchanged, and, if ``fallback_random`` is set, with a
    copy of the state as a tensor.
    """
    register_graphsafe_rng_device_type(device_type)
    _upstream.apply(_upstream.RNG_STATE)
    rng_prims.run_and_save_rng_state.py_impl(DispatchKey.PrivateUse1)(_run_and_save)
    rng_prims.run_with_rng_state.py_impl(DispatchKey.PrivateUse1)(_run_with)


def _run_and_save(op: Any, *args: Any, **kwargs: Any) -> Any:
    return openreg.get_rng_state(), op(*args, **kwargs)


def _run_with(state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    current = openreg.get_rng_state()
    openreg.set_rng_state(state.cpu())
    result = op(*args, **kwargs)
    openreg.set_rng_state(current)
    return result


def _is_ours(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an operator with these arguments runs on this device."""
    devices = [kwargs.get("device"), *(arg.device for arg in args if isinstance(arg, torch.Tensor))]
    return next((torch.device(each).type == device_type for each in devices if each is not None), False)


def run_and_save(original: Callable[..., Any], op: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps two functions of run_and_save_rng_state: that for factories, and that for fake tensors."""
    return (_run_and_save if _is_ours(args, kwargs) else original)(op, *args, **kwargs)


def run_with(original: Callable[..., Any], state: torch.Tensor, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps the function of run_with_rng_state for factories."""
    return (_run_with if _is_ours(args, kwargs) else original)(state, op, *args, **kwargs)


def trace_run_and_save(
    original: Callable[..., Any], mode: ProxyTorchDispatchMode, op: Any, *args: Any, **kwargs: Any
) -> Any:
    """Wraps the function of run_and_save_rng_state that puts a call into the graph."""
    if not _is_ours(args, kwargs):
        return original(mode, op, *args, **kwargs)
    proxies = pytree.tree_map(mode.tracer.unwrap_proxy, ((op, *args), kwargs))  # type: ignore[union-attr]
    call = mode.tracer.create_proxy("call_function", rng_prims.run_and_save_rng_state, *proxies)
    return track_tensor_tree(_run_and_save(op, *args, **kwargs), call, constant=None, tracer=mode.tracer)


# LITERALINCLUDE END: RNG STATE
