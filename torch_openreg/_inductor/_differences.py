"""Replaces the decisions of inductor that depend on the name of a device and that no registration can change.

This source serves PyTorch 2.13 to 2.15.

The loops are the CPU's, so the choices about loops must be the CPU's too. But the device is an accelerator, so the
choices about devices must be as for a GPU: which operand decides the device of a result, device guards, streams. To
append the name to inductor's GPU_TYPES is no solution: the scheduler would then order loops as SIMD backends (Triton)
need them, and inductor would ask for Triton.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch._inductor import (
    autotune_process,
    codecache,
    config,
    cudagraph_utils,
    decomposition,
    graph,
    ir,
    lowering,
    scheduler,
    select_algorithm,
    utils,
)
from torch._inductor.codegen import cpp
from torch._inductor.fx_passes import b2b_gemm, fuse_attention, replace_random
from torch._inductor.virtualized import V
from torch.utils import _pytree as pytree

from torch_openreg._environment import device_type

hops = torch.ops.higher_order


class _OnCpu:
    """Stands for a node, but says that it is on the CPU. For functions that read the node and do not keep it."""

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
    for owner, name, replacement in REPLACED:
        setattr(owner, name, _replaced(getattr(owner, name), replacement))
    for operator in NEED_TRITON:
        lowering.lowerings[operator] = _replaced(lowering.lowerings[operator], _refuse)
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    if device_type == "cuda":
        if device_type in utils.GPU_TYPES:  # since 2.15 the list has the devices whose interface says `is_gpu()`
            utils.GPU_TYPES.remove(device_type)
        config.cuda_backend = "cpp"  # type: ignore[assignment]
        for function in NO_TRITON:
            _forget_cuda(function)
    # LEFT OUT OF A NEW BACKEND END
    # As on the CPU, the activations of convolutions are channels-last.
    graph.SUPPORTED_MKLDNN_DEVICES = (*graph.SUPPORTED_MKLDNN_DEVICES, device_type)  # type: ignore[assignment]


def _replaced(original: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    return replaced


# LEFT OUT OF A NEW BACKEND START: the face cuda
def _forget_cuda(function: Any) -> None:
    """Replaces the constant "cuda" in a function, which then treats the device "cuda" as an unknown device.

    The function is changed in place, because other modules hold references to it.
    """

    def replaced(constant: Any) -> Any:
        if isinstance(constant, tuple):
            return tuple(map(replaced, constant))
        return "no device" if constant == "cuda" else constant

    function = inspect.unwrap(function)
    function.__code__ = function.__code__.replace(co_consts=replaced(function.__code__.co_consts))


# LEFT OUT OF A NEW BACKEND END
def _is_cpu(original: Any, self: Any) -> bool:
    return original(self) or _is_ours(self)


def _is_cpp(original: Any, self: Any, *args: Any) -> bool:
    return True


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


def _no_combination(original: Any, self: Any, nodes: Any) -> bool:
    return not any(map(_is_ours, nodes)) and original(self, nodes)


def _no_two_products(original: Any, is_left: bool, a: Any, *others: Any) -> bool:
    return a.meta["val"].device.type != device_type and original(is_left, a, *others)


def _without_device_memory(original: Any, self: Any, source: str, nodes: Any, kernel_args: Any = None) -> Any:
    if not any(map(_is_ours, nodes)):
        args = kernel_args or self.kernel_group.args
        for name in (*args.input_buffers, *args.output_buffers, *args.inplace_buffers):
            device = V.graph.get_buffer(name).get_device() if name not in V.graph.constants else None
            if device is not None and device.type == device_type:
                operators = sorted({origin.name for node in nodes for origin in node.node.origins})
                raise RuntimeError(
                    "Expected all tensors to be on the same device, but a compiled kernel on the CPU would access a "
                    f"tensor on {device}. Operators: {', '.join(operators)}."
                )
    return original(self, source, nodes, kernel_args)


def _fused_as_on_cpu(original: Any, self: Any, node: Any, other: Any) -> Any:
    return scheduler.FusionResult.fuse(True) if _is_ours(node.get_nodes()[0]) else original(self, node, other)


def _templates_as_on_cpu(original: Any, layout: Any) -> bool:
    return original(types.SimpleNamespace(device=torch.device("cpu")) if layout.device.type == device_type else layout)


def _chosen_at_once(original: Any, self: Any, name: str, choices: Any, inputs: Any, layout: Any, **kwargs: Any) -> Any:
    if layout.device.type == device_type:
        kwargs["return_multi_template"] = False
    return original(self, name, choices, inputs, layout, **kwargs)


def _example_on_cpu(original: Any, size: Any, stride: Any, device: torch.device, *args: Any, **kwargs: Any) -> Any:
    return original(size, stride, torch.device("cpu") if device.type == device_type else device, *args, **kwargs)


def _timed_on_cpu(original: Any, self: Any, run: Any, *inputs: torch.Tensor, out: torch.Tensor | None = None) -> float:
    if all(each.device.type == "cpu" for each in inputs):
        return autotune_process.CPUDeviceBenchmarkMixin.do_bench(self, run, *inputs, out=out)
    return original(self, run, *inputs, out=out)


def _any_generator(original: Any, kernel: Any, *args: Any, **kwargs: Any) -> Any:
    def of_a_gpu(state: ir.GeneratorState) -> ir.GeneratorState:
        return dataclasses.replace(state, device=torch.device("cuda", state.device.index))

    args, kwargs = pytree.tree_map_only(ir.GeneratorState, of_a_gpu, (args, kwargs))
    return original(kernel, *args, **kwargs)


def _no_capture(original: Any) -> str:
    return "the simulated device cannot capture graphs"


def _refuse(original: Any, *args: Any, **kwargs: Any) -> Any:
    if any(isinstance(each, ir.IRNode) and _is_ours(each) for each in pytree.arg_tree_leaves(*args, **kwargs)):
        raise NotImplementedError(
            f'{original.__name__} cannot be compiled for device "{device_type}", because inductor has only Triton code '
            "for it, and this device needs C++: call it outside of torch.compile, or with tensors on the CPU."
        )
    return original(*args, **kwargs)


# LITERALINCLUDE START: DIFFERENCES
REPLACED = (
    # As on the CPU, the scheduler does not reorder loops. On a GPU it reorders loops so that more loops are fused.
    (scheduler.BaseSchedulerNode, "is_cpu", _is_cpu),
    # As on the CPU, inductor chooses the thresholds for computing a value twice, and the code of argmin and argmax.
    (ir, "get_device_type", _device_type),
    # As on the CPU, a variance is computed in two steps: then LayerNorm gives the same numbers.
    (lowering, "use_two_step_variance", _as_on_cpu),
    # As on the CPU, a division by a constant does not become a multiplication by its reciprocal.
    (lowering, "div_prim", _div_prim),
    # As on the CPU, a scatter with several threads runs ATen's kernel: atomic additions are slower, and their order
    # varies.
    (lowering, "use_scatter_fallback", _scatter_as_on_cpu),
    (decomposition, "use_scatter_fallback", _scatter_as_on_cpu),
    # A result of a CPU scalar and a device tensor is on the device.
    (lowering, "is_gpu", _or_ours),
    # An operator such as _foreach_add_ may write the result of device tensors into a CPU tensor. Inductor would make a
    # kernel on the CPU, which cannot access the memory of the device. So the compilation raises RuntimeError.
    (cpp.CppScheduling, "define_kernel", _without_device_memory),
    # The generated code gets device guards. Inductor writes the lines that set a stream only inside a device guard.
    (scheduler, "device_need_guard", _or_ours),
    # As on the CPU, independent loops are not combined in one kernel, and two matrix products are not fused: these
    # kernels are Triton's.
    (scheduler.Scheduler, "speedup_by_combo_kernel", _no_combination),
    (b2b_gemm, "is_b2b_gemm_good_on", _no_two_products),
    # As on the CPU, loops are fused without a measurement: inductor would measure Triton's kernels.
    (scheduler.Scheduler, "speedup_by_fusion", _fused_as_on_cpu),
    # As on the CPU, max-autotune measures templates in C++ for matrix products. The templates and ATen's kernels are
    # measured with tensors on the CPU, because the measurement calls a template directly. Only a launch translates the
    # addresses of the device.
    (utils, "_use_template_for_cpu", _templates_as_on_cpu),
    (select_algorithm.AlgorithmSelectorCache, "__call__", _chosen_at_once),
    (select_algorithm.AlgorithmSelectorCache, "generate_example_value", _example_on_cpu),
    (autotune_process.GPUDeviceBenchmarkMixin, "do_bench", _timed_on_cpu),
    # As on the CPU, the key of inductor's cache contains the number of threads, because the loops are generated for
    # this number. Without the number, a process with many threads could get loops that use only one thread.
    (codecache.FxGraphHashDetails, "_may_generate_cpu_cpp_code", _is_cpp),
    # Since 2.14, inductor accepts the generator of a checkpointed region only if its type is CUDA's or XPU's, and then
    # takes the generator of the accelerator, whatever its type is. So inductor is told that our generator is CUDA's.
    (ir.FallbackKernel, "process_kernel", _any_generator),
    # With mode="reduce-overhead", a program runs without a CUDA graph. If the type is "cuda", inductor logs why.
    (cudagraph_utils, "check_caching_allocator_for_cudagraphs", _no_capture),
)

# For these operators inductor generates Triton on each device but the CPU.
NEED_TRITON = (hops.flex_attention, hops.flex_attention_backward, hops.associative_scan)
# LITERALINCLUDE END: DIFFERENCES

# LEFT OUT OF A NEW BACKEND START: the face cuda
# For the name "cuda", these functions choose what is fast or exact in Triton. Without this choice they do as on the
# CPU: a product that is added is rounded before the sum, attention in float32 is fused although TensorFloat-32 is off,
# and align_random_eager changes nothing.
NO_TRITON = (
    *(lowering.add, lowering.addcmul, lowering.addcdiv, lowering.inductor_random),
    *(fuse_attention._sfdp_params_check, replace_random.replace_random),
)
# LEFT OUT OF A NEW BACKEND END
