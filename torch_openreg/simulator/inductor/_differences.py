"""The wrappers of _upstream.py around inductor's decisions. Each is called with PyTorch's function, and its arguments.

This source serves PyTorch 2.13 to 2.15.
"""

from __future__ import annotations

import dataclasses
import types
from typing import Any
from unittest import mock

import torch
from torch import fx
from torch._inductor import (
    autotune_process,
    decomposition,
    graph,
    ir,
    lowering,
    scheduler,
)
from torch._inductor.virtualized import V
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

from torch_openreg import _upstream
from torch_openreg._identity import device_type
from torch_openreg.simulator.inductor._upstream import DIFFERENCES


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


# As on the CPU, the activations of convolutions are channels-last.
SUPPORTED_MKLDNN_DEVICES = (*graph.SUPPORTED_MKLDNN_DEVICES, device_type)


def patch_inductor(_: types.ModuleType) -> None:
    """Replaces what inductor decides by a device's name."""
    _upstream.apply(DIFFERENCES)


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


def _decomposed(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps the lowering of a higher-order operator: lowers what its implementation for eager execution calls."""
    if not any(isinstance(each, ir.IRNode) and _is_ours(each) for each in pytree.arg_tree_leaves(*args, **kwargs)):
        return original(*args, **kwargs)
    node: Any = V.graph.current_node
    nodes, structure = pytree.tree_flatten((node.args, node.kwargs))
    values = pytree.tree_leaves((args, kwargs))
    # The subgraphs are attributes of the graph's module. The implementation calls them, so they are no inputs.
    subgraphs = {
        i: getattr(V.graph.module, str(each.target))
        for i, each in enumerate(nodes)
        if isinstance(each, fx.Node) and each.op == "get_attr" and isinstance(values[i], ir.Subgraph)
    }
    inputs = [i for i, each in enumerate(nodes) if isinstance(each, fx.Node) and i not in subgraphs]
    implementation = node.target.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd]

    def compute(*given: Any) -> Any:
        leaves = [subgraphs.get(i, each) for i, each in enumerate(nodes)]
        for i, each in zip(inputs, given, strict=True):
            leaves[i] = each
        positional, named = pytree.tree_unflatten(leaves, structure)
        return implementation(*positional, **named)

    def example(value: Any) -> Any:
        # The implementation of a backward asks which captured tensors need a gradient, and those of a graph never say so.
        is_tensor = isinstance(value, torch.Tensor)
        return value.detach().requires_grad_(value.is_floating_point()) if is_tensor else value

    with V.fake_mode, torch.no_grad():
        traced = make_fx(compute, decomposition_table=decomposition.select_decomp_table())(
            *(example(nodes[i].meta["val"]) for i in inputs)
        )
    for each in traced.graph.nodes:
        if each.op == "get_attr":  # inductor looks for constants in the module of its graph
            constant = getattr(traced, each.target)
            each.target = f"{node.name}_{each.target}"
            setattr(V.graph.module, each.target, constant)
    return lowering.process_subgraph_nodes(traced, [values[i] for i in inputs])
