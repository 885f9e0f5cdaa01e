"""The suite of modules: PyTorch's `module_db`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from comparison import leaves
from torch.nn.utils.rnn import PackedSequence
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInfo, module_db

from .samples import Sample, Suite, Variant, always, differentiate

# A sample's input is the module, made on the CPU; the rest are the arguments of its forward.


def _inputs(info: ModuleInfo, dtype: torch.dtype) -> Iterator[tuple[Any, bool]]:
    for training in (True, False) if info.train_and_eval_differ else (True,):
        for each in info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training):
            yield each, training


def _samples(info: ModuleInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for each, training in _inputs(info, dtype):
        made = each.constructor_input
        module = info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        given = each.forward_input
        yield Sample(module, tuple(given.args), dict(given.kwargs))


def _channels_last(info: ModuleInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in _samples(info, dtype):
        if any(isinstance(leaf, torch.Tensor) and leaf.dim() == 4 for leaf in leaves(sample.args)):
            module = sample.input.to(memory_format=torch.channels_last)
            changed = sample.map(
                lambda t: t.clone(memory_format=torch.channels_last if t.dim() == 4 else torch.preserve_format)
            )
            yield Sample(module, changed.args, changed.kwargs)


def _error_samples(info: ModuleInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for error in info.module_error_inputs_func(info, device="cpu", dtype=dtype, requires_grad=False, training=False):
        each = error.module_error_input
        made = each.constructor_input
        if error.error_on == ModuleErrorEnum.CONSTRUCTION_ERROR:
            yield Sample((info.module_cls, made.args, made.kwargs))
        else:
            given = each.forward_input
            yield Sample(info.module_cls(*made.args, **made.kwargs), tuple(given.args), dict(given.kwargs))


def _unpacked(output: Any) -> Any:
    return [
        [leaf.data, leaf.sorted_indices, leaf.batch_sizes.tolist()] if isinstance(leaf, PackedSequence) else leaf
        for leaf in leaves(output)
    ]


def _module(sample: Sample) -> torch.nn.Module:
    return copy.deepcopy(sample.input).to(sample.device)


def _forward(info: ModuleInfo, sample: Sample) -> Any:
    module = _module(sample)
    with torch.no_grad():
        return _unpacked(module(*sample.args, **sample.kwargs)), dict(module.state_dict())


def _backward(info: ModuleInfo, sample: Sample) -> Any:
    module = _module(sample)
    outputs = leaves(_unpacked(module(*sample.args, **sample.kwargs)))
    inputs = [*module.parameters(), *leaves(sample.arguments())]
    return outputs, differentiate(outputs, inputs), dict(module.state_dict())


def _double_backward(info: ModuleInfo, sample: Sample) -> Any:
    module = _module(sample)
    outputs = leaves(_unpacked(module(*sample.args, **sample.kwargs)))
    inputs = [*module.parameters(), *leaves(sample.arguments())]
    return differentiate(differentiate(outputs, inputs, create_graph=True), inputs)


def _error(info: ModuleInfo, sample: Sample) -> Any:
    if isinstance(sample.input, tuple):
        cls, args, kwargs = sample.input
        return cls(*args, **{**kwargs, "device": sample.device})
    return _unpacked(_module(sample)(*sample.args, **sample.kwargs))


def _has_gradgrad(info: ModuleInfo, dtype: torch.dtype) -> bool:
    return info.supports_gradgrad


def _has_errors(info: ModuleInfo, dtype: torch.dtype) -> bool:
    return info.module_error_inputs_func is not None and dtype is torch.float32


_Samples = Callable[[ModuleInfo, torch.dtype], Iterator[Sample]]

SUITE = Suite(
    entries={info.name: info for info in module_db},
    # The database names the dtypes that CUDA and the CPU have in common. The CPU's modules take these two as well.
    dtypes=lambda info: {*info.dtypes, torch.float16, torch.bfloat16},
    variants={
        "forward": Variant("the module without gradients; its state", always, _samples, _forward),
        "backward": Variant("outputs, gradients of parameters and arguments, state", always, _samples, _backward),
        "double_backward": Variant("gradients of gradients", _has_gradgrad, _samples, _double_backward),
        "channels_last": Variant("images and weights channels last", always, _channels_last, _backward),
        "error": Variant("wrong arguments: the exception", _has_errors, _error_samples, _error),
    },
)
