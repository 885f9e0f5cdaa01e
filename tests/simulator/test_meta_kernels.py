"""PyTorch's meta kernels predict the sizes, strides, dtype and device of every result of the device.

Compiled programs and FakeTensor rely on the prediction: they use the strides of results that they have never seen.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, place, significant_strides
from sample_inputs import sample_inputs
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

aten = torch.ops.aten

# Operator -> why its results differ from the prediction. The results of an operator in this table must differ.
DIFFERENT: dict[str, str] = {}
# Operators that cannot run on the device, as on CUDA (indices on the device), or run on CUDA only.
REFUSED = {"tensor_split"} | {op.name for op in op_db if op.name.startswith("jiterator")}
# The errors of meta kernels whose results depend on the data, so that nothing can be predicted.
UNPREDICTABLE = (DataDependentOutputException, DynamicOutputShapeException)


def description(leaf: Any) -> Any:
    if not isinstance(leaf, Tensor):
        return type(leaf)
    strides = significant_strides(leaf) if leaf.layout is torch.strided else None
    return leaf.dtype, leaf.layout, tuple(leaf.shape), strides, leaf.device.type


def predict_and_run(fn: Callable[..., object], *args: Any, **kwargs: Any) -> tuple[list[Any], list[Any]]:
    """Descriptions of the results of a call: as the meta kernels predict them, and as the device computes them."""
    mode = FakeTensorMode()
    fake = tree_map(lambda leaf: mode.from_tensor(leaf) if isinstance(leaf, Tensor) else leaf, (args, kwargs))
    with mode:
        predicted = fn(*fake[0], **fake[1])
    return tree_map(description, tree_leaves(predicted)), tree_map(description, tree_leaves(fn(*args, **kwargs)))


@pytest.mark.slow
def test_every_operator_gives_what_is_predicted() -> None:
    different, compared = {}, 0
    for op in op_db:
        if torch.float32 not in op.supported_dtypes("cpu") or op.name in REFUSED:
            continue
        for sample in itertools.islice(sample_inputs(op, torch.float32), 3):
            moved = place([sample.input, list(sample.args), sample.kwargs], DEVICE)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    predicted, actual = predict_and_run(op, moved[0], *moved[1], **moved[2])
                except UNPREDICTABLE:
                    continue
            compared += 1
            if predicted != actual:
                different[op.full_name] = f"{op.full_name}: {actual}, predicted {predicted}"
    assert compared > 1700
    assert sorted(different) == sorted(DIFFERENT), "\n".join(different.values())


def q_k_v(layout: str, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    def one(length: int) -> Tensor:
        if layout == "heads first":
            return torch.randn(2, 4, length, 8, device=DEVICE).to(dtype)
        if layout == "heads inside":
            return torch.randn(2, length, 4, 8, device=DEVICE).to(dtype).transpose(1, 2)
        return torch.randn(1, 4, length, 8, device=DEVICE).to(dtype).expand(2, 4, length, 8)

    return [one(16), one(12), one(12)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", ["heads first", "heads inside", "expanded"])
def test_attention_gives_what_is_predicted_forward_and_backward(layout: str, dtype: torch.dtype) -> None:
    query, key, value = q_k_v(layout, dtype)
    forward = aten._scaled_dot_product_fused_attention_overrideable
    predicted, actual = predict_and_run(forward, query, key, value)
    if dtype is torch.float64:  # the CPU's logsumexp is float64; CUDA's kernel refuses float64
        assert actual[1] == (dtype, *predicted[1][1:])
        actual[1] = predicted[1]
    assert actual == predicted
    assert actual[1][3] == (64, 16, 1)
    out, logsumexp, _, _, max_q, max_k, seed, offset, _ = forward(query, key, value)
    predicted, actual = predict_and_run(
        aten._scaled_dot_product_fused_attention_overrideable_backward,
        torch.randn_like(out), query, key, value, None, [True, True, True, False], out, logsumexp, None, None,
        max_q, max_k, 0.0, False, seed, offset,
    )  # fmt: skip
    assert actual == predicted


def test_a_transformer_is_captured_with_its_backward() -> None:
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True, device=DEVICE)
    x = torch.randn(2, 5, 8, device=DEVICE)

    def loss(x: Tensor) -> Tensor:
        return attention(x, x, x, need_weights=False)[0].square().sum()

    loss(x).backward()
    expected = [p.grad.clone() for p in attention.parameters()]
    attention.zero_grad()
    torch.compile(loss, backend="aot_eager")(x).backward()
    for parameter, gradient in zip(attention.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["native_batch_norm", "_native_batch_norm_legit"])
def test_batch_normalisation_saves_the_statistics_that_it_used(name: str, training: bool) -> None:
    x = torch.randn(3, 4, 2, device=DEVICE)
    mean, var = torch.randn(4, device=DEVICE), torch.rand(4, device=DEVICE) + 1
    call = getattr(aten, name)
    predicted, actual = predict_and_run(call, x, None, None, mean, var, training, 0.1, 1e-5)
    assert actual == predicted
    assert actual[1] == (torch.float32, torch.strided, (4,), (1,), DEVICE)
    if not training:
        _, saved_mean, saved_inverse = call(x, None, None, mean, var, training, 0.1, 1e-5)
        torch.testing.assert_close(saved_mean, mean)
        assert saved_mean.data_ptr() != mean.data_ptr()
        torch.testing.assert_close(saved_inverse, 1 / (var + 1e-5).sqrt())


def test_batch_normalisation_differentiates_where_it_used_the_running_statistics() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        layers = [torch.nn.BatchNorm1d(4, device=device, dtype=dtype).eval() for device in ("cpu", DEVICE)]
        x = torch.randn(3, 4).to(dtype)
        gradients = []
        for layer, device in zip(layers, ("cpu", DEVICE), strict=True):
            leaf = x.to(device, copy=True).requires_grad_()
            layer(leaf).square().sum().backward()
            gradients.append([leaf.grad.cpu(), *(p.grad.cpu() for p in layer.parameters())])
        assert all(map(torch.equal, *gradients))
