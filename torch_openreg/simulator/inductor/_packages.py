"""Packages of AOTInductor for the device: the CPU's code, which csrc/simulator/borrowed/inductor/PackagedModel.cpp runs."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from torch_openreg._identity import device_type

CPU = torch.device("cpu")


def compile_on_the_cpu(original: Any, model: fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps compile_fx_aot(): compiles a model of this device for the CPU, and marks the package as this device's.

    A library without a package has no mark: the code generator refuses it (_codegen.py).
    """
    if not (kwargs.get("config_patches") or {}).get("aot_inductor.package"):
        return original(model, inputs, *args, **kwargs)
    tensors = [*_tensors(model).values(), *(each for each in pytree.tree_leaves(inputs) if torch.is_tensor(each))]
    if not any(tensor.device.type == device_type for tensor in tensors):
        return original(model, inputs, *args, **kwargs)
    moved = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(CPU), inputs)
    files = original(_on_the_cpu(model), moved, *args, **kwargs)
    for file in files:
        if isinstance(file, str) and file.endswith("_metadata.json"):
            facts = json.loads(Path(file).read_text())
            Path(file).write_text(json.dumps(facts | {"AOTI_DEVICE_KEY": device_type}))
    return files


def _tensors(model: fx.GraphModule) -> dict[str, torch.Tensor]:
    names = {str(node.target) for node in model.graph.nodes if node.op == "get_attr"}
    values = {name: fx.graph_module._get_attr(model, name) for name in names}
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return state | {name: value for name, value in values.items() if torch.is_tensor(value)}


def _on_the_cpu(model: fx.GraphModule) -> fx.GraphModule:
    """A copy of the model on the CPU. The model keeps its tensors."""
    copies: dict[int, Any] = {}
    for tensor in _tensors(model).values():
        moved = tensor.detach().to(CPU)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        copies[id(tensor)] = torch.nn.Parameter(moved, tensor.requires_grad) if is_parameter else moved
    result = copy.deepcopy(model, copies)

    def place(leaf: Any) -> Any:
        return CPU if isinstance(leaf, torch.device) and leaf.type == device_type else leaf

    for graph in (each for each in result.modules() if isinstance(each, fx.GraphModule)):
        for node in graph.graph.nodes:
            node.args, node.kwargs = fx.node.map_aggregate((node.args, node.kwargs), place)
            if "val" in node.meta:
                node.meta["val"] = pytree.tree_map_only(torch.Tensor, lambda val: val.to(CPU), node.meta["val"])
        graph.recompile()
    return result
