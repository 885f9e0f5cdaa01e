"""The suite of modules: PyTorch's `module_db`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_leaves

from . import Sample, Suite, Variant, always, differentiate

# A sample's input is the module, made on the CPU; the rest are the arguments of its forward.


def samples(info: ModuleInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for training in (True, False) if info.train_and_eval_differ else (True,):
        for each in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training):
            made = each.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
            given = each.forward_input
            yield Sample(module, tuple(given.args), dict(given.kwargs))


def unpacked(output: Any) -> list[Any]:
    """The leaves of an output, with the members of a packed sequence in its place."""
    return [
        [leaf.data, leaf.sorted_indices, leaf.batch_sizes.tolist()] if isinstance(leaf, PackedSequence) else leaf
        for leaf in tree_leaves(output)
    ]


def module_of(sample: Sample) -> torch.nn.Module:
    """A copy of the module on the sample's device."""
    module: torch.nn.Module = copy.deepcopy(sample.input).to(sample.device)
    return module


def _forward(info: ModuleInfo, sample: Sample) -> Any:
    module = module_of(sample)
    with torch.no_grad():
        return unpacked(module(*sample.args, **sample.kwargs)), dict(module.state_dict())


def backward(info: ModuleInfo, sample: Sample) -> Any:
    module = module_of(sample)
    outputs = unpacked(module(*sample.args, **sample.kwargs))
    inputs = [*module.parameters(), *tree_leaves(sample.arguments())]
    return outputs, differentiate(outputs, inputs), dict(module.state_dict())


SUITE = Suite(
    entries={info.name: info for info in module_db},
    # The database names the dtypes that CUDA and the CPU have in common. The CPU's modules take these two as well.
    dtypes=lambda info: {*info.dtypes, torch.float16, torch.bfloat16},
    variants={
        "forward": Variant("the module without gradients; its state", always, samples, _forward),
        "backward": Variant("outputs, gradients of parameters and arguments, state", always, samples, backward),
    },
)
