"""Replaces the decisions of inductor 2.13 that depend on the name of a device and have no registration.

The loops are the CPU's, so the choices about loops must be the CPU's too. But the device is an accelerator, so the
choices about devices must be as for a GPU: which operand decides the device of a result, device guards, streams. It is
no solution to append the name to inductor's GPU_TYPES, because the scheduler would then order loops as SIMD backends
need it, and ask for Triton.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch._inductor import cudagraph_utils, decomposition, graph, ir, lowering, scheduler, utils

from torch_openreg._environment import device_type


class _OnCpu:
    """A view of a node that says that it is on the CPU, for functions that only ask."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def __getattr__(self, name: str) -> Any:
        return getattr(self._node, name)

    def get_device(self) -> torch.device:
        return torch.device("cpu")


def _is_ours(node: Any) -> bool:
    return node.get_device() is not None and node.get_device().type == device_type


def patch_inductor() -> None:
    """Replaces the functions of inductor that decide by a device's name."""
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    if device_type in utils.GPU_TYPES:  # type "cuda": for inductor, a device with Triton's kernels
        utils.GPU_TYPES.remove(device_type)
    # LEFT OUT OF A NEW BACKEND END
    for owner, name, replacement in REPLACED:
        setattr(owner, name, _replaced(getattr(owner, name), replacement))
    # As on the CPU, the activations of convolutions are channels-last.
    graph.SUPPORTED_MKLDNN_DEVICES = (*graph.SUPPORTED_MKLDNN_DEVICES, device_type)  # type: ignore[assignment]


def _replaced(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replaced


def _is_cpu(original: Any, self: Any) -> bool:
    return original(self) or _is_ours(self)


def _or_ours(original: Any, device: str | None) -> bool:
    return device == device_type or original(device)


def _device_type(original: Any, node: Any) -> str | None:
    if isinstance(node, _OnCpu):
        return "cpu"
    found = original(node)
    return "cpu" if found == device_type else found


def _as_on_cpu(original: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    return original(_OnCpu(x) if _is_ours(x) else x, *args, **kwargs)


def _scatter_as_on_cpu(original: Any, op: Any, reduction: Any, to: Any, source: Any, device: str, *args: Any) -> bool:
    return original(op, reduction, to, source, "cpu" if device == device_type else device, *args)


def _div_prim(original: Any, a: Any, b: Any) -> Any:
    if isinstance(a, ir.IRNode) and _is_ours(a):
        with mock.patch.object(lowering, "get_constant_value", lambda value: None):
            return original(a, b)
    return original(a, b)


def _no_capture(original: Any) -> str:
    return str(cudagraph_utils.format_default_skip_message("the simulated device cannot capture graphs"))


# LITERALINCLUDE START: DIFFERENCES
REPLACED = (
    # The scheduler would reorder loops for SIMD backends; C++ loops are merged as they are.
    (scheduler.BaseSchedulerNode, "is_cpu", _is_cpu),
    # The CPU's thresholds for computing a value twice, and the CPU's argmin and argmax.
    (ir, "get_device_type", _device_type),
    # As on the CPU, a variance is computed in two steps: then LayerNorm gives the same numbers.
    (lowering, "use_two_step_variance", _as_on_cpu),
    # As on the CPU, a division by a constant is no multiplication by its reciprocal.
    (lowering, "div_prim", _div_prim),
    # As on the CPU, several threads add with ATen's kernel: atomic additions are slower, and their order varies.
    (lowering, "use_scatter_fallback", _scatter_as_on_cpu),
    (decomposition, "use_scatter_fallback", _scatter_as_on_cpu),
    # A result of a CPU scalar and a device tensor is on the device.
    (lowering, "is_gpu", _or_ours),
    # Device guards, which also set the stream.
    (scheduler, "device_need_guard", _or_ours),
    # mode="reduce-overhead" runs without a graph. If the device has CUDA's name, inductor says so.
    (cudagraph_utils, "check_caching_allocator_for_cudagraphs", _no_capture),
)
# LITERALINCLUDE END: DIFFERENCES
