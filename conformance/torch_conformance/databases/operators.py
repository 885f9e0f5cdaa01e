"""The suite of operators: PyTorch's `op_db`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from . import (
    Sample,
    Suite,
    Variant,
    always,
    double_backward,
    forward_and_backward,
    sample_inputs,
    seeded,
    tensors,
)


def sample_of(sample: SampleInput) -> Sample:
    return Sample(sample.input, tuple(sample.args), dict(sample.kwargs), sample.output_process_fn_grad)


def samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return map(sample_of, sample_inputs(op, dtype))


def grad_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return map(sample_of, sample_inputs(op, dtype, requires_grad=True))


def changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[OpInfo, torch.dtype], Iterator[Sample]]:
    """The samples of an operator, with ``change(tensor)`` in the place of every strided tensor."""
    return lambda op, dtype: (sample.map(change) for sample in samples(op, dtype))


def forward(op: OpInfo, sample: Sample) -> Any:
    # The arguments are part of the result: running statistics are updated in place, views alias their base.
    return sample.call(op), sample.arguments()


def has_backward(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def _has_double_backward(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_gradgrad and has_backward(op, dtype)


def _lazy_conj(tensor: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(tensor).conj() if tensor.is_complex() else tensor


def _lazy_neg(tensor: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(-tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def _inplace_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return (sample_of(s) for s in sample_inputs(op, dtype) if not s.broadcasts_input)


def _inplace(op: OpInfo, sample: Sample) -> Any:
    return sample.call(op.get_inplace()), sample.arguments()


def _out(op: OpInfo, sample: Sample) -> Any:
    made = sample.call(op)
    flat = [torch.zeros_like(t) for t in tensors(made)]
    return sample.call(op, out=flat[0] if isinstance(made, torch.Tensor) else type(made)(flat)), flat


def _error_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    for error in seeded(op.error_inputs_func(op, "cpu")):
        sample = sample_of(error.sample_input)
        sample.error = error.error_type
        yield sample


def _has_errors(op: OpInfo, dtype: torch.dtype) -> bool:
    # To look for a sample makes tensors, which takes long, so it comes last.
    return op.error_inputs_func is not None and dtype is torch.float32 and any(True for _ in _error_samples(op, dtype))


SUITE = Suite(
    entries={op.full_name: op for op in op_db},
    dtypes=lambda op: op.supported_dtypes("cpu"),
    variants={
        "forward": Variant("the operator; its arguments afterwards", always, samples, forward),
        "backward": Variant("outputs and gradients", has_backward, grad_samples, forward_and_backward),
        "double_backward": Variant("gradients of gradients", _has_double_backward, grad_samples, double_backward),
        "noncontiguous": Variant("on strided arguments", always, changed(noncontiguous_like), forward),
        "conj": Variant(
            "on lazily conjugated arguments", lambda op, dtype: dtype.is_complex, changed(_lazy_conj), forward
        ),
        "neg": Variant(
            "on lazily negated arguments",
            lambda op, dtype: dtype.is_complex or dtype.is_floating_point,
            changed(_lazy_neg),
            forward,
        ),
        "inplace": Variant(
            "the in-place form", lambda op, dtype: op.get_inplace() is not None, _inplace_samples, _inplace
        ),
        "out": Variant("out= of the right shape", lambda op, dtype: op.supports_out, samples, _out),
        "error": Variant("wrong arguments: the exception", _has_errors, _error_samples, forward),
    },
)
