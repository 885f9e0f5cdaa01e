"""The suite of optimizers: the kit's variants of PyTorch's `optim_db`, and more of them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo
from torch_conformance.databases import Sample, Variant, optimizers


def _run_capturable(info: OptimizerInfo, sample: Sample) -> Any:
    """Adds the CPU to PyTorch's list of the devices that have a capturable form, so that the CPU can be compared."""
    module = sys.modules[info.optim_cls.__module__]
    with mock.patch.object(module, "_get_capturable_supported_devices", lambda **_: [sample.device]):
        return optimizers.steps(info, sample)


def _run_differentiable(info: OptimizerInfo, sample: Sample) -> Any:
    """The parameters after one step, and their gradients with respect to the parameters and the .grad before it."""
    grads, settings = sample.args
    first = [parameter.detach().clone().requires_grad_() for parameter in sample.input]
    parameters = [parameter.clone() for parameter in first]
    for parameter, grad in zip(parameters, grads[0], strict=True):
        parameter.grad = grad.clone().requires_grad_()
    leaves = [parameter.grad for parameter in parameters]
    optimizer = info.optim_cls(parameters, **settings)
    optimizer.step()
    outputs = [p for p in parameters if p.requires_grad]
    return parameters, torch.autograd.grad(
        outputs, [*first, *leaves], [torch.ones_like(p) for p in outputs], allow_unused=True
    )


def _has_capturable(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return info.has_capturable_arg


def _takes_sparse(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return info.supports_sparse or info.only_supports_sparse_grads


def _error_samples(info: OptimizerInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for error in info.optim_error_inputs_func(device="cpu", dtype=dtype):
        each = error.optimizer_error_input
        yield Sample(each.params, (each.kwargs,))


def _error(info: OptimizerInfo, sample: Sample) -> Any:
    parameters = list(sample.input) if inspect.isgenerator(sample.input) else sample.input
    optimizer = info.optim_cls(parameters, **sample.args[0])
    optimizer.step()


def _has_errors(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return info.optim_error_inputs_func is not None and dtype is torch.float32


_LOOP = {"foreach": False}

SUITE = replace(
    optimizers.SUITE,
    variants=optimizers.SUITE.variants
    | {
        "forloop": Variant("foreach=False", optimizers.has("foreach"), optimizers.samples(_LOOP), optimizers.steps),
        "capturable": Variant(
            "capturable=True", _has_capturable, optimizers.samples({"capturable": True, **_LOOP}), _run_capturable
        ),
        "capturable_foreach": Variant(
            "capturable=True, foreach=True",
            _has_capturable,
            optimizers.samples({"capturable": True, "foreach": True}),
            _run_capturable,
        ),
        "differentiable": Variant(
            "differentiable=True",
            optimizers.has("differentiable"),
            optimizers.samples({"differentiable": True, **_LOOP}),
            _run_differentiable,
        ),
        "sparse": Variant("sparse gradients", _takes_sparse, optimizers.samples({}, sparse=True), optimizers.steps),
        "error": Variant("wrong settings: the exception", _has_errors, _error_samples, _error),
    },
)
