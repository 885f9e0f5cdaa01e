"""The suite of operators: PyTorch's `op_db`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from comparison import leaves
from sample_inputs import sample_inputs
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import noncontiguous_like
from torch.testing._internal.opinfo.core import OpInfo

from .samples import Sample, Suite, Variant, always, double_backward, forward_and_backward, outcome


def _sample(sample: Any) -> Sample:
    return Sample(sample.input, tuple(sample.args), dict(sample.kwargs), sample.output_process_fn_grad)


def _samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return map(_sample, sample_inputs(op, dtype))


def _grad_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return map(_sample, sample_inputs(op, dtype, requires_grad=True))


def _changed(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[OpInfo, torch.dtype], Iterator[Sample]]:
    return lambda op, dtype: (sample.map(change) for sample in _samples(op, dtype))


def _forward(op: OpInfo, sample: Sample) -> Any:
    # The arguments are part of the result: running statistics are updated in place, views alias their base.
    return sample.call(op), sample.arguments()


def _has_backward(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def _no_elements(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:0].clone() if tensor.dim() else tensor


def _lazy_conj(tensor: torch.Tensor) -> torch.Tensor:
    return torch.conj_physical(tensor).conj() if tensor.is_complex() else tensor


def _lazy_neg(tensor: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(-tensor) if tensor.is_floating_point() or tensor.is_complex() else tensor


def _inplace_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return (_sample(s) for s in sample_inputs(op, dtype) if not s.broadcasts_input)


def _inplace(op: OpInfo, sample: Sample) -> Any:
    return sample.call(op.get_inplace()), sample.arguments()


_OUTPUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "of the right shape": torch.zeros_like,
    "strided": lambda t: t.new_zeros((*t.shape, 2))[..., 0],
    "empty, to be resized": lambda t: t.new_empty(0),
    "of a wrong size": lambda t: t.new_zeros((3, *t.shape)),
    "of a wider dtype": lambda t: torch.zeros_like(t, dtype=torch.complex128 if t.is_complex() else torch.float64),
    "of another kind of dtype": lambda t: torch.zeros_like(t, dtype=torch.bool),
}


def _out(op: OpInfo, sample: Sample) -> Any:
    expected = sample.call(op)
    outputs = [t for t in leaves(expected) if isinstance(t, torch.Tensor)]
    results: dict[str, Any] = {}
    for name, make in _OUTPUTS.items():
        out = [make(t) for t in outputs]
        given = out[0] if isinstance(expected, torch.Tensor) else type(expected)(out)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            returned = outcome(lambda given=given: sample.call(op, out=given))  # type: ignore[misc]
        if isinstance(returned, str):
            results[name] = returned  # what an operator has written before it raises is not defined
        else:
            # PyTorch gives the other warnings only once in a process.
            resized = [str(w.message) for w in caught if str(w.message).startswith("An output with one or more")]
            results[name] = (out, resized)
    return results


def _error_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Sample]:
    return (_sample(error.sample_input) for error in op.error_inputs("cpu"))


def _default_dtype(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.error_inputs_func is not None and dtype is torch.float32


def _sparse(layout: torch.layout, requires_grad: bool) -> Callable[[OpInfo, torch.dtype], Iterator[Sample]]:
    return lambda op, dtype: map(_sample, op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad))


def _has_sparse(layout: torch.layout) -> Callable[[OpInfo, torch.dtype], bool]:
    return lambda op, dtype: op.supports_sparse_layout(layout)


def _has_sparse_backward(layout: torch.layout) -> Callable[[OpInfo, torch.dtype], bool]:
    return lambda op, dtype: op.supports_sparse_layout(layout) and _has_backward(op, dtype)


_LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}

VARIANTS = {
    "forward": Variant("the operator; its arguments afterwards", always, _samples, _forward),
    "backward": Variant("outputs and gradients", _has_backward, _grad_samples, forward_and_backward),
    "double_backward": Variant(
        "gradients of gradients",
        lambda op, dtype: op.supports_gradgrad and _has_backward(op, dtype),
        _grad_samples,
        double_backward,
    ),
    "noncontiguous": Variant("on strided arguments", always, _changed(noncontiguous_like), _forward),
    "zero_size": Variant("on arguments without elements", always, _changed(_no_elements), _forward),
    "conj": Variant(
        "on lazily conjugated arguments", lambda op, dtype: dtype.is_complex, _changed(_lazy_conj), _forward
    ),
    "neg": Variant(
        "on lazily negated arguments",
        lambda op, dtype: dtype.is_complex or dtype.is_floating_point,
        _changed(_lazy_neg),
        _forward,
    ),
    "inplace": Variant("the in-place form", lambda op, dtype: op.get_inplace() is not None, _inplace_samples, _inplace),
    "out": Variant(f"out= {', '.join(_OUTPUTS)}", lambda op, dtype: op.supports_out, _samples, _out),
    "error": Variant("wrong arguments: the exception", _default_dtype, _error_samples, _forward),
    **{
        name: Variant(f"on sparse {name} tensors", _has_sparse(layout), _sparse(layout, False), _forward)
        for name, layout in _LAYOUTS.items()
    },
    **{
        f"{name}_backward": Variant(
            f"gradients of sparse {name} tensors",
            _has_sparse_backward(layout),
            _sparse(layout, True),
            forward_and_backward,
        )
        for name, layout in _LAYOUTS.items()
    },
}

SUITE = Suite(
    entries={op.full_name: op for op in op_db},
    dtypes=lambda op: op.supported_dtypes("cpu"),
    variants=VARIANTS,
)
