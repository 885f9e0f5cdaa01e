"""The optional abilities of a backend. The kit discovers an ability by using it in the smallest way.

An ability is a function of the device. The function returns if the backend has the ability, and raises otherwise. The
report gives the exception as the reason.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import loading
from .interfaces import interfaces as _interfaces
from .registry import NotOffered

ABILITIES: dict[str, Callable[[str], object]] = {}


def ability(function: Callable[[str], object]) -> Callable[[str], object]:
    ABILITIES[function.__name__] = function
    return function


def device_module(device: str) -> Any:
    """The module of a device: ``torch.npu`` for ``npu:0``. Raises NotOffered if there is none."""
    module = getattr(torch, torch.device(device).type, None)
    if module is None:
        raise NotOffered(f"there is no module torch.{torch.device(device).type}")
    return module


@functools.cache
def _missing(name: str, device: str) -> str | None:
    try:
        ABILITIES[name](device)
    except Exception as error:
        return f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return None


def require(names: tuple[str, ...], device: str) -> None:
    """Raises NotOffered, with the reason, if the backend lacks one of the abilities ``names``.

    If PyTorch has no such device at all, raises PyTorch's own error, which is a failure and not a missing ability.
    """
    torch.empty(0, device=device)
    for name in names:
        if reason := _missing(name, device):
            raise NotOffered(reason)


def device_count(device: str) -> int:
    """The number of devices of this type."""
    return int(device_module(device).device_count())


def _must(condition: object, otherwise: str) -> None:
    if not condition:
        raise NotOffered(otherwise)


@ability
def autoload(device: str) -> None:
    _must(not loading.is_used(), "the backend has no entry point in the group torch.backends: --import loads it")


@ability
def accelerator(device: str) -> None:
    _must(torch.accelerator.current_accelerator() is not None, "PyTorch sees no accelerator")
    _must(
        torch.accelerator.current_accelerator().type == torch.device(device).type,  # type: ignore[union-attr]
        f"torch.accelerator stands for {torch.accelerator.current_accelerator()} in this process",
    )


@ability
def module(device: str) -> None:
    device_module(device).device_count()


@ability
def private_use(device: str) -> None:
    _must(torch._C._get_privateuse1_backend_name() == torch.device(device).type, "not a device of the type PrivateUse1")


@ability
def storage(device: str) -> None:
    torch.empty(1, device=device).untyped_storage().data_ptr()
    _must(torch.empty(1, device=device).untyped_storage().nbytes() == 4, "tensors have no storage of their own")
    _must(type(torch.empty(1, device=device)) is torch.Tensor, "tensors are of a Python subclass")


@ability
def strides(device: str) -> None:
    x = torch.ones(2, 3).to(device).t()
    _must(
        x.stride() == (1, 3), f"x.t() of a contiguous tensor has the strides {x.stride()}, so tensors keep no strides"
    )


@ability
def dlpack(device: str) -> None:
    storage(device)
    torch.ones(1).to(device).__dlpack_device__()


@ability
def not_the_host(device: str) -> None:
    _must(torch.device(device).type != "cpu", "the device is the CPU, so there is no device beside the host")


@ability
def interfaces(device: str) -> None:
    accelerator(device)
    _interfaces(device)


@ability
def profiler_stubs(device: str) -> None:
    private_use(device)
    _interfaces(device).stubs_record()


@ability
def host_cache(device: str) -> None:
    pinned(device)
    # A backend without a host allocator has no cache. PyTorch 2.13 then crashes in empty_host_cache().
    _must(torch.empty(1).pin_memory().is_pinned(), "pin_memory() gives a tensor that is not pinned")
    torch.accelerator.empty_host_cache()


@ability
def streams(device: str) -> None:
    accelerator(device)
    first, second = torch.Stream(device=device), torch.Stream(device=device)
    _must(first.stream_id != second.stream_id, "two new streams have the same stream_id")


@ability
def events(device: str) -> None:
    accelerator(device)
    event = torch.Event(device)
    event.record(torch.accelerator.current_stream(device))
    _must(event.event_id, "a recorded event has no event_id")


@ability
def timing(device: str) -> None:
    first, second = torch.Event(device, enable_timing=True), torch.Event(device, enable_timing=True)
    first.record(torch.accelerator.current_stream(device))
    second.record(torch.accelerator.current_stream(device))
    second.synchronize()
    first.elapsed_time(second)


@ability
def graphs(device: str) -> None:
    streams(device)
    graph = torch.accelerator.Graph()
    x = torch.ones(1, device=device)
    with torch.Stream(device=device), graph:
        x.add_(1)


@ability
def two_devices(device: str) -> None:
    _must(device_count(device) >= 2, "there are not two devices of this type")


@ability
def pinned(device: str) -> None:
    accelerator(device)
    torch.empty(1).pin_memory()


@ability
def generator(device: str) -> None:
    torch.Generator(device)


@ability
def statistics(device: str) -> None:
    accelerator(device)
    torch.accelerator.memory_stats(device)


@ability
def memory_info(device: str) -> None:
    accelerator(device)
    torch.accelerator.get_memory_info(device)


@ability
def capability(device: str) -> None:
    torch.accelerator.get_device_capability(device)


@ability
def memory_fraction(device: str) -> None:
    device_module(device).set_per_process_memory_fraction(1.0)


@ability
def pools(device: str) -> None:
    module = device_module(device)
    module.MemPool, module.use_mem_pool  # noqa: B018


@ability
def snapshot(device: str) -> None:
    device_module(device).memory_snapshot()


@ability
def history(device: str) -> None:
    device_module(device).memory._record_memory_history  # noqa: B018


@ability
def amp(device: str) -> None:
    type = torch.device(device).type
    _must(torch.amp.is_autocast_available(type), "autocast is not available")
    # PyTorch warns, and computes in float32, if the device's module does not name the dtype.
    with torch.autocast(type):
        _must(
            torch.is_autocast_enabled(type), f"the device does not support autocast in {torch.get_autocast_dtype(type)}"
        )


def profiler_activity(device: str) -> Any:
    """The torch.profiler.ProfilerActivity of a device."""
    name = {"cuda": "CUDA", "xpu": "XPU", "mtia": "MTIA"}.get(torch.device(device).type, "PrivateUse1")
    return getattr(torch.profiler.ProfilerActivity, name)


@ability
def profiler(device: str) -> None:
    not_the_host(device)
    activity = profiler_activity(device)
    _must(
        activity in torch.profiler.supported_activities(),
        "torch.profiler.supported_activities() does not name the device",
    )
    # PyTorch names the activity of every device outside PyTorch, also if the backend gives it no events.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, activity]) as profile:
        torch.empty(4, device=device).fill_(1)
        device_module(device).synchronize()
    _must(
        any(event.device_type != torch.autograd.DeviceType.CPU for event in profile.events()),
        "a profile of the device has no device event",
    )


@ability
def compiler(device: str) -> None:
    from torch._inductor.codegen.common import get_scheduling_for_device, init_backend_registration

    init_backend_registration()
    _must(get_scheduling_for_device(torch.device(device).type), "no scheduling is registered with Inductor")


@ability
def dynamo(device: str) -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    get_interface_for_device(torch.device(device).type)


@ability
def distributed(device: str) -> None:
    import torch.distributed as dist

    _must(dist.is_available(), "this PyTorch has no torch.distributed")
    backend = dist.get_default_backend_for_device(torch.device(device).type)
    _must(hasattr(dist.Backend, backend.upper()), f"torch.distributed has no backend {backend}")


@ability
def sharing(device: str) -> None:
    storage(device)
    from multiprocessing.reduction import ForkingPickler

    import torch.multiprocessing

    ForkingPickler.dumps(torch.zeros(1, device=device))


def _dtype(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    ABILITIES[name] = lambda device: torch.zeros(1, dtype=dtype).to(device)


for each in (torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.bool):
    _dtype(each)
