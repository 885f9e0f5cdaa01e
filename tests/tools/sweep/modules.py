"""The suite of modules: the kit's variants of PyTorch's `module_db`, and more of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.testing._internal.common_modules import ModuleErrorEnum, ModuleInfo
from torch_conformance.databases import Sample, Variant, always, differentiate, modules, tensors


def _channels_last(info: ModuleInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for sample in modules.samples(info, dtype):
        if any(tensor.dim() == 4 for tensor in tensors(sample.args)):
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


def _double_backward(info: ModuleInfo, sample: Sample) -> Any:
    module = modules.module_of(sample)
    outputs = modules.unpacked(module(*sample.args, **sample.kwargs))
    inputs = [*module.parameters(), *tensors(sample.arguments())]
    return differentiate(differentiate(outputs, inputs, create_graph=True), inputs)


def _error(info: ModuleInfo, sample: Sample) -> Any:
    if isinstance(sample.input, tuple):
        cls, args, kwargs = sample.input
        return cls(*args, **{**kwargs, "device": sample.device})
    return modules.unpacked(modules.module_of(sample)(*sample.args, **sample.kwargs))


def _has_gradgrad(info: ModuleInfo, dtype: torch.dtype) -> bool:
    return info.supports_gradgrad


def _has_errors(info: ModuleInfo, dtype: torch.dtype) -> bool:
    return info.module_error_inputs_func is not None and dtype is torch.float32


SUITE = replace(
    modules.SUITE,
    variants=modules.SUITE.variants
    | {
        "double_backward": Variant("gradients of gradients", _has_gradgrad, modules.samples, _double_backward),
        "channels_last": Variant("images and weights channels last", always, _channels_last, modules.backward),
        "error": Variant("wrong arguments: the exception", _has_errors, _error_samples, _error),
    },
)
