"""The suite of optimizers: PyTorch's `optim_db`, in each form that an optimizer has."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.testing._internal.common_optimizers import OptimizerInfo, optim_db
from torch.utils._pytree import tree_map

from . import Sample, Suite, Variant

STEPS = 4
_SHAPES = ((3, 5), (4, 2))  # Muon takes matrices only

# `input` of a sample is the list of parameters. `args` of a sample has the gradients of each step, and the optimizer's
# settings.


def samples(flags: dict[str, bool], sparse: bool = False) -> Callable[[OptimizerInfo, torch.dtype], Iterator[Sample]]:
    """The samples of an optimizer for each of its settings, with ``flags`` added."""

    def made(info: OptimizerInfo, dtype: torch.dtype) -> Iterator[Sample]:
        draw = torch.Generator().manual_seed(2)

        def tensor(shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.complex128 if dtype.is_complex else torch.float64)

        for each in info.optim_inputs_func(device="cpu"):
            parameters = [tensor(shape).to(dtype).requires_grad_() for shape in _SHAPES]
            grads = [[tensor(shape).to(dtype) for shape in _SHAPES] for _ in range(STEPS)]
            if sparse:
                grads = [[grad.to_sparse(1) for grad in step] for step in grads]
            yield Sample(parameters, (grads, {**each.kwargs, **flags}))

    return made


def steps(info: OptimizerInfo, sample: Sample) -> Any:
    """The parameters and the optimizer's state after all steps."""
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


def _default(info: OptimizerInfo, sample: Sample) -> Any:
    """Runs the optimizer without a choice of its form.

    On an accelerator PyTorch then chooses foreach, so the CPU runs foreach too. Adafactor is the exception: it never
    chooses foreach by itself, because foreach needs more memory.
    """
    grads, settings = sample.args
    if sample.device == "cpu" and "foreach" in info.supported_impls and info.optim_cls is not torch.optim.Adafactor:
        settings = {**settings, "foreach": True}
    return steps(info, replace(sample, args=(grads, settings)))


def has(form: str) -> Callable[[OptimizerInfo, torch.dtype], bool]:
    return lambda info, dtype: form in info.supported_impls and not info.only_supports_sparse_grads


def _takes_dense(info: OptimizerInfo, dtype: torch.dtype) -> bool:
    return not info.only_supports_sparse_grads


def _dtypes(info: OptimizerInfo) -> set[torch.dtype]:
    real = {torch.float32, torch.float64, torch.float16, torch.bfloat16}
    return real | {torch.complex64, torch.complex128} if info.supports_complex else real


SUITE = Suite(
    entries={info.optim_cls.__name__: info for info in optim_db},
    dtypes=_dtypes,
    variants={
        "default": Variant("as constructed without a choice", _takes_dense, samples({}), _default),
        "foreach": Variant("foreach=True", has("foreach"), samples({"foreach": True}), steps),
        "fused": Variant("fused=True", has("fused"), samples({"fused": True}), steps),
    },
)
