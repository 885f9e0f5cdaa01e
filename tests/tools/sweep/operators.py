"""The suite of operators: the kit's variants of PyTorch's `op_db`, and more of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.testing._internal.opinfo.core import OpInfo
from torch_conformance.databases import Sample, Variant, always, forward_and_backward, operators, tensors

from .errors import outcome


def _no_elements(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:0].clone() if tensor.dim() else tensor


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
    results: dict[str, Any] = {}
    for name, make in _OUTPUTS.items():
        out = [make(t) for t in tensors(expected)]
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


def _sparse(layout: torch.layout, requires_grad: bool) -> Callable[[OpInfo, torch.dtype], Iterator[Sample]]:
    return lambda op, dtype: map(
        operators.sample_of, op.sample_inputs_sparse(layout, "cpu", dtype, requires_grad=requires_grad)
    )


def _has_sparse(layout: torch.layout) -> Callable[[OpInfo, torch.dtype], bool]:
    return lambda op, dtype: op.supports_sparse_layout(layout)


def _has_sparse_backward(layout: torch.layout) -> Callable[[OpInfo, torch.dtype], bool]:
    return lambda op, dtype: op.supports_sparse_layout(layout) and operators.has_backward(op, dtype)


_LAYOUTS = {
    "coo": torch.sparse_coo,
    "csr": torch.sparse_csr,
    "csc": torch.sparse_csc,
    "bsr": torch.sparse_bsr,
    "bsc": torch.sparse_bsc,
}

SUITE = replace(
    operators.SUITE,
    variants=operators.SUITE.variants
    | {
        "zero_size": Variant(
            "on arguments without elements", always, operators.changed(_no_elements), operators.forward
        ),
        "out": Variant(f"out= {', '.join(_OUTPUTS)}", lambda op, dtype: op.supports_out, operators.samples, _out),
        **{
            name: Variant(f"on sparse {name} tensors", _has_sparse(layout), _sparse(layout, False), operators.forward)
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
    },
)
