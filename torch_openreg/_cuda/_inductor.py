"""torch.compile for the type cuda: inductor chooses code in Triton by that name, and the device has C++."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from torch._inductor import config, utils

from torch_openreg import _upstream
from torch_openreg._cuda._upstream import INDUCTOR
from torch_openreg._identity import device_type


def leave_out(trace_rules: ModuleType) -> None:
    """Lets dynamo end the graph before a function that stands for a C function of a build with CUDA."""
    trace_rules.add("torch_openreg._cuda")


def patch_inductor(_: ModuleType) -> None:
    """Replaces the functions of inductor that decide by the name "cuda" what is fast or exact in Triton."""
    if device_type in utils.GPU_TYPES:  # since 2.15 the list has the devices whose interface says `is_gpu()`
        utils.GPU_TYPES.remove(device_type)
    _upstream.apply(INDUCTOR)


BACKEND = "cpp"


def start_no_worker(*_: Any) -> None:
    """The processes that AsyncCompile starts compile kernels of Triton only."""


def not_aligned(original: Any, *args: Any, **kwargs: Any) -> Any:
    """align_random_eager gives the numbers of CUDA's generator in Triton, so it changes nothing here."""
    with config.patch(align_random_eager=False):
        return original(*args, **kwargs)


def partitioned_as_gpu(original: Any, *args: Any) -> Any:
    """mode="reduce-overhead": the nodes of the device go into graphs. For inductor's is_gpu() it is no GPU."""
    with mock.patch("torch._inductor.scheduler.is_gpu", lambda device: device == device_type):
        return original(*args)


class _OtherDevice:
    """Stands for a device, but says that its type is not cuda."""

    type = "other"

    def __init__(self, device: Any) -> None:
        self.device = device

    def __eq__(self, other: object) -> bool:
        return bool(self.device == getattr(other, "device", other))

    __hash__ = None  # type: ignore[assignment]


class _OnOtherDevice:
    """Stands for the node of a tensor."""

    def __init__(self, node: Any) -> None:
        value = node.meta["val"]
        self.meta = {"val": SimpleNamespace(dtype=value.dtype, device=_OtherDevice(value.device))}


def fused_without_tf32(original: Any, match: Any) -> bool:
    """Attention in float32 is fused although TensorFloat-32 is off: the kernels compute in float32."""
    operands = {name: _OnOtherDevice(match.kwargs[name]) for name in ("query", "key", "value")}
    return original(SimpleNamespace(kwargs=operands, nodes=match.nodes))
