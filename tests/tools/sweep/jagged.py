"""The suite of jagged tensors: PyTorch's `njt_op_db`."""

from __future__ import annotations

from typing import Any

from torch.testing._internal.opinfo.core import OpInfo
from torch.testing._internal.opinfo.definitions.nested import njt_op_db
from torch_conformance.databases import Sample, Suite, Variant, always, forward_and_backward
from torch_conformance.databases.operators import grad_samples, has_backward, samples


def _forward(op: OpInfo, sample: Sample) -> Any:
    return sample.call(op.op)


def _backward(op: OpInfo, sample: Sample) -> Any:
    return forward_and_backward(op.op, sample)


SUITE = Suite(
    entries={op.full_name: op for op in njt_op_db},
    dtypes=lambda op: op.supported_dtypes("cpu"),
    variants={
        "forward": Variant("on jagged tensors", always, samples, _forward),
        "backward": Variant("gradients", has_backward, grad_samples, _backward),
    },
)
