"""The suite of jagged tensors: PyTorch's `njt_op_db`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from sample_inputs import sample_inputs
from torch.testing._internal.opinfo.core import OpInfo
from torch.testing._internal.opinfo.definitions.nested import njt_op_db

from .samples import Sample, Suite, Variant, always, forward_and_backward


def _samples(op: OpInfo, dtype: torch.dtype, requires_grad: bool) -> Iterator[Sample]:
    for sample in sample_inputs(op, dtype, requires_grad):
        yield Sample(sample.input, tuple(sample.args), dict(sample.kwargs), sample.output_process_fn_grad)


def _forward(op: OpInfo, sample: Sample) -> Any:
    return sample.call(op.op)


def _backward(op: OpInfo, sample: Sample) -> Any:
    return forward_and_backward(op.op, sample)


def _has_backward(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


SUITE = Suite(
    entries={op.full_name: op for op in njt_op_db},
    dtypes=lambda op: op.supported_dtypes("cpu"),
    variants={
        "forward": Variant("on jagged tensors", always, lambda op, dtype: _samples(op, dtype, False), _forward),
        "backward": Variant("gradients", _has_backward, lambda op, dtype: _samples(op, dtype, True), _backward),
    },
)
