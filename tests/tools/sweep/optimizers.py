"""The suite of optimizers: PyTorch's `optim_db`, in each form that an optimizer has."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any
from unittest import mock

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._pytree import tree_map

from .samples import Sample, Suite, Variant

STEPS = 4
_SHAPES = ((3, 5), (4, 2))  # Muon takes matrices only

# `input` of a sample is the list of parameters. `args` of a sample has the gradients of each step, and the optimizer's
# settings.


def _samples(flags: dict[str, bool], sparse: bool = False) -> Callable[[OptimizerInfo, torch.dtype], Iterator[Sample]]:
    def samples(info: OptimizerInfo, dtype: torch.dtype) -> Iterator[Sample]:
        draw = torch.Generator().manual_seed(2)

        def tensor(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.complex128 if dtype.is_complex else torch.float64)

        for each in info.optim_inputs_func(device="cpu"):
            parameters = [tensor(shape).to(dtype).requires_grad_() for shape in _SHAPES]
            grads = [[tensor(shape).to(dtype) for shape in _SHAPES] for _ in range(STEPS)]
            if sparse:
                grads = [[grad.to_sparse(1) for grad in step] for step in grads]
            yield Sample(parameters, (grads, {**each.kwargs, **flags}))

    return samples


def _run(info: OptimizerInfo, sample: Sample) -> Any:
    grads, settings = sample.args
    optimizer = info.optim_cls(sample.input, **settings)
    for step in grads:

        def closure(step: Any = step) -> torch.Tensor:
            for parameter, grad in zip(sample.input, step, strict=True):
                parameter.grad = grad.clone()
            with torch.no_grad():
                return sum((p * p.conj()).real.sum() for p in sample.input)  # type: ignore[return-value]

        if info.step_requires_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    # The step count is a host tensor in some forms and a device tensor in others.
    state = tree_map(
        lambda leaf: leaf.item() if isinstance(leaf, torch.Tensor) and leaf.dim() == 0 else leaf,
        optimizer.state_dict()["state"],
    )
    return sample.input, state


def _run_default(info: OptimizerInfo, sample: Sample) -> Any:
    """Runs the optimizer without a choice of its form.

    On an accelerator PyTorch then chooses foreach, so the CPU runs foreach too. Adafactor is the exception: it never
    chooses foreach by itself, because foreach needs more memory.
    """
    grads, settings = sample.args
    if sample.device == "cpu" and "foreach" in info.supported_impls and info.optim_cls is not torch.optim.Adafactor:
        settings = {**settings, "foreach": True}
    return _run(info, replace(sample, args=(grads, settings)))


def _run_capturable(info: OptimizerInfo, sample: Sample) -> Any:
    """Adds the CPU to PyTorch's list of the devices that have a capturable form, so that the CPU can be compared."""
    module = sys.modules[info.optim_cls.__module__]
    with mock.patch.object(module, "_get_capturable_supported_devices", lambda **_: [sample.device]):
        return _run(info, sample)


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


def _has(form: str) -> Callable[[OptimizerInfo, torch.dtype], bool]:
    return lambda info, dtype: form in info.supported_impls and not info.only_supports_sparse_grads


def _has_capturable(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return info.has_capturable_arg


def _takes_dense(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return not info.only_supports_sparse_grads


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


def _dtypes(info: OptimizerInfo) -> set[torch.dtype]:
    real = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    return real | {torch.complex64, torch.complex128} if info.supports_complex else real


_LOOP = {"foreach": False}

SUITE = Suite(
    entries={info.optim_cls.__name__: info for info in optim_db},
    dtypes=_dtypes,
    variants={
        "default": Variant("as constructed without a choice", _takes_dense, _samples({}), _run_default),
        "forloop": Variant("foreach=False", _has("foreach"), _samples(_LOOP), _run),
        "foreach": Variant("foreach=True", _has("foreach"), _samples({"foreach": True}), _run),
        "fused": Variant("fused=True", _has("fused"), _samples({"fused": True}), _run),
        "capturable": Variant(
            "capturable=True", _has_capturable, _samples({"capturable": True, **_LOOP}), _run_capturable
        ),
        "capturable_foreach": Variant(
            "capturable=True, foreach=True",
            _has_capturable,
            _samples({"capturable": True, "foreach": True}),
            _run_capturable,
        ),
        "differentiable": Variant(
            "differentiable=True",
            _has("differentiable"),
            _samples({"differentiable": True, **_LOOP}),
            _run_differentiable,
        ),
        "sparse": Variant("sparse gradients", _takes_sparse, _samples({}, sparse=True), _run),
        "error": Variant("wrong settings: the exception", _has_errors, _error_samples, _error),
    },
)
