"""Operators that PyTorch documents as nondeterministic: each raises PyTorch's alert, or gives the same bits every time.

The name of a case is ``operators/deterministic/OPERATOR``. The operators are those for which the documentation of
`torch.use_deterministic_algorithms` names an alert, and those for which only PyTorch's source for CUDA has an alert.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PREFIX = "operators/deterministic/"
RUNS = 5

Program = Callable[[], Tensor]
Make = Callable[[str], Program]


def _floats(device: Any, *size: int) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)).to(device)


def _ints(device: Any, limit: int, *size: int) -> Tensor:
    return torch.randint(limit, size, generator=torch.Generator().manual_seed(0)).to(device)


def _call(operator: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Make:
    """Calls ``operator`` with 8 ones, 4096 indices below 8, and 4096 numbers. Each index occurs about 512 times."""

    def make(device: str) -> Program:
        index, values = _ints(device, 8, 4096), _floats(device, 4096)
        return lambda: operator(torch.ones(8, device=device), index, values)

    return make


def _gradient(forward: Callable[[Tensor], Tensor], *size: int) -> Make:
    """The program runs only the backward. The forward runs before it, when determinism is not yet asked for.

    A forward in a deterministic program might choose another backward.
    """

    def make(device: str) -> Program:
        x = _floats(device, *size).requires_grad_()
        y = forward(x)
        direction = _floats(device, *y.shape)
        return lambda: torch.autograd.grad(y, x, direction, retain_graph=True)[0]

    return make


def _into(operator: Any, forward: Callable[[Tensor], Any], size: tuple[int, ...], *arguments: Any) -> Make:
    """Runs the overload of a backward that writes to a given tensor, ``grad_input``. No module calls this overload.

    A hook of a gradient makes the call, because autograd passes warnings on to Python. A direct call through torch.ops
    does not pass them on.
    """

    def make(device: str) -> Program:
        x = _floats(device, *size)
        made = forward(x)
        y, *indices = made if isinstance(made, tuple) else (made,)
        direction, start = _floats(device, *y.shape), x.clone().requires_grad_()
        end = start.clone()
        end.register_hook(
            lambda _: operator.grad_input(direction, x, *arguments, *indices, grad_input=torch.empty_like(x))
        )
        return lambda: torch.autograd.grad(end, start, x, retain_graph=True)[0]

    return make


def _ctc_loss(x: Tensor) -> Tensor:
    targets = 1 + _ints(x.device, 15, 8, 10)
    return F.ctc_loss(x.log_softmax(2), targets, [len(x)] * 8, [10] * 8)


_aten, _nn, _WIDE = torch.ops.aten, torch._C._nn, [24, 24]

# Operator -> its name in the documentation ("" if only CUDA's source has the alert), and a program that calls it.
ALERTS: dict[str, tuple[str, Make]] = {
    "avg_pool3d_backward": ("torch.nn.AvgPool3d", _gradient(nn.AvgPool3d(3, 1), 1, 2, 8, 8, 8)),
    "_adaptive_avg_pool2d_backward": ("torch.nn.AdaptiveAvgPool2d", _gradient(nn.AdaptiveAvgPool2d(7), 1, 2, 16, 16)),
    "_adaptive_avg_pool3d_backward": ("torch.nn.AdaptiveAvgPool3d", _gradient(nn.AdaptiveAvgPool3d(5), 1, 2, 8, 8, 8)),
    "adaptive_avg_pool3d_backward.grad_input": (
        "", _into(_aten.adaptive_avg_pool3d_backward, nn.AdaptiveAvgPool3d(5), (1, 2, 8, 8, 8))),
    "adaptive_max_pool2d_backward": ("torch.nn.AdaptiveMaxPool2d", _gradient(nn.AdaptiveMaxPool2d(7), 1, 2, 16, 16)),
    "fractional_max_pool2d_backward": (
        "torch.nn.FractionalMaxPool2d", _gradient(nn.FractionalMaxPool2d(3, output_size=8), 1, 2, 16, 16)),
    "fractional_max_pool3d_backward": (
        "torch.nn.FractionalMaxPool3d", _gradient(nn.FractionalMaxPool3d(3, output_size=4), 1, 2, 8, 8, 8)),
    "fractional_max_pool3d_backward.grad_input": (
        "", _into(_aten.fractional_max_pool3d_backward, nn.FractionalMaxPool3d(3, output_size=4, return_indices=True),
                  (1, 2, 8, 8, 8), [3, 3, 3], [4, 4, 4])),
    "max_pool3d_with_indices_backward": ("", _gradient(nn.MaxPool3d(3, 1), 1, 2, 8, 8, 8)),
    "max_pool3d_with_indices_backward.grad_input": (
        "", _into(_aten.max_pool3d_with_indices_backward, nn.MaxPool3d(3, 1, return_indices=True),
                  (1, 2, 8, 8, 8), [3] * 3, [1] * 3, [0] * 3, [1] * 3, False)),
    "max_unpool1d": (
        "torch.nn.MaxUnpool1d", _call(lambda _, i, v: F.max_unpool1d(v.view(1, 1, -1), i.view(1, 1, -1), 2))),
    "max_unpool2d": (
        "torch.nn.MaxUnpool2d", _call(lambda _, i, v: F.max_unpool2d(v.view(1, 1, 64, 64), i.view(1, 1, 64, 64), 2))),
    "max_unpool3d": (
        "torch.nn.MaxUnpool3d", _call(lambda _, i, v: F.max_unpool3d(v.view(1, 16, 16, 16), i.view(1, 16, 16, 16), 2))),
    **{
        operator: ("torch.nn.functional.interpolate", _gradient(forward, *size))
        for operator, forward, size in (
            ("upsample_linear1d_backward", lambda x: _nn.upsample_linear1d(x, [48], False), (1, 2, 16)),
            ("upsample_bilinear2d_backward", lambda x: _nn.upsample_bilinear2d(x, _WIDE, False), (1, 2, 8, 8)),
            ("_upsample_bilinear2d_aa_backward", lambda x: _nn._upsample_bilinear2d_aa(x, _WIDE, False), (1, 2, 8, 8)),
            ("upsample_bicubic2d_backward", lambda x: _nn.upsample_bicubic2d(x, _WIDE, False), (1, 2, 8, 8)),
            ("_upsample_bicubic2d_aa_backward", lambda x: _nn._upsample_bicubic2d_aa(x, _WIDE, False), (1, 2, 8, 8)),
            ("upsample_trilinear3d_backward", lambda x: _nn.upsample_trilinear3d(x, [12] * 3, False), (1, 2, 4, 4, 4)),
        )
    },
    "reflection_pad1d_backward": ("torch.nn.ReflectionPad1d", _gradient(nn.ReflectionPad1d(7), 1, 2, 8)),
    "reflection_pad2d_backward": ("torch.nn.ReflectionPad2d", _gradient(nn.ReflectionPad2d(7), 1, 2, 8, 8)),
    "reflection_pad2d_backward.grad_input": (
        "", _into(_aten.reflection_pad2d_backward, nn.ReflectionPad2d(7), (1, 2, 8, 8), [7] * 4)),
    "reflection_pad3d_backward": ("torch.nn.ReflectionPad3d", _gradient(nn.ReflectionPad3d(3), 1, 2, 4, 4, 4)),
    "nll_loss2d_forward": (
        "torch.nn.NLLLoss", _call(lambda _, i, v: F.nll_loss(v.view(1, 16, 16, 16), i[:256].view(1, 16, 16)))),
    "_ctc_loss_backward": ("torch.nn.CTCLoss", _gradient(_ctc_loss, 50, 8, 16)),
    "_embedding_bag_backward": (
        "torch.nn.EmbeddingBag", _gradient(lambda w: F.embedding_bag(_ints(w.device, 8, 64, 8), w, mode="max"), 8, 16)),
    "put_": ("torch.Tensor.put_", _call(lambda x, i, v: x.put_(i, v, accumulate=True))),
    "put_.overwriting": ("torch.Tensor.put_", _call(lambda x, i, v: x.put_(i, v))),
    "histc": ("torch.histc", _call(lambda _, i, v: v.histc(8))),
    "bincount": ("torch.bincount", _call(lambda _, i, v: i.bincount(v))),
    "median.dim_values": ("torch.median", _call(lambda _, i, v: v.round().view(8, -1).median(1).indices)),
    "kthvalue.values": ("", _call(lambda _, i, v: v.round().view(8, -1).kthvalue(99, 1).indices)),
    "grid_sampler_2d_backward": (
        "torch.nn.functional.grid_sample",
        _gradient(lambda x: F.grid_sample(x, _floats(x.device, 1, 32, 32, 2), align_corners=False), 1, 2, 8, 8)),
    "grid_sampler_3d_backward": (
        "torch.nn.functional.grid_sample",
        _gradient(lambda x: F.grid_sample(x, _floats(x.device, 1, 8, 8, 8, 3), align_corners=False), 1, 2, 4, 4, 4)),
    "cumsum": ("torch.cumsum", _call(lambda _, i, v: v.cumsum(0))),
    "scatter_reduce.two": ("torch.Tensor.scatter_reduce", _call(lambda x, i, v: x.scatter_reduce(0, i, v, "prod"))),
    "scatter.reduce": ("", _call(lambda x, i, v: x.scatter(0, i, v, reduce="multiply"))),
    "index_reduce": ("", _call(lambda x, i, v: x.index_reduce(0, i, v, "prod"))),
    "resize_": (
        "torch.Tensor.resize_",
        _call(lambda _, i, v: torch.quantize_per_tensor(v, 0.1, 0, torch.qint8).resize_(8).int_repr())),
}  # fmt: skip


def names() -> list[str]:
    """The names of all cases."""
    return [PREFIX + operator for operator in ALERTS]


def _outcome(program: Program, deterministic: bool, warn_only: bool = False) -> tuple[Tensor | None, bool]:
    """The program's result (None if an alert was raised), and whether an alert was raised or warned. Synchronises.

    The wording of alerts is that of Context::alertNotDeterministic (aten/src/ATen/Context.cpp).
    """
    mode = "True, warn_only=True" if warn_only else "True"
    alert = f"does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms({mode})'."
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = program().cpu()
        return result, any(alert in str(warning.message) for warning in caught)
    except RuntimeError as error:
        if alert not in str(error):
            raise
        return None, True
    finally:
        torch.use_deterministic_algorithms(False)


def run(name: str, device: str) -> str:
    """Runs one case. Raises if the alert is not PyTorch's, or if there is none and two runs give different bits.

    Raises NotOffered if the operator gives the same bits in all runs.
    """
    from .kit import usable
    from .registry import NotOffered, device_side

    operator = name.removeprefix(PREFIX)
    program = device_side(lambda: ALERTS[operator][1](device))
    expected, alerted = device_side(lambda: _outcome(program, False))
    assert expected is not None and not alerted, "gives an alert although the program is not deterministic"
    first, alerted = _outcome(program, True)
    if first is None:
        usable(device)
        result, alerted = _outcome(program, True, warn_only=True)
        assert result is not None, "raises its alert although warn_only=True is set"
        assert alerted, "raises its alert, but does not warn with warn_only=True"
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype), "warns, and changes shape or dtype"
        return "raises PyTorch's alert"
    assert not alerted, "warns although warn_only=True is not set"
    for _ in range(RUNS - 1):
        again, _ = _outcome(program, True)
        same = again is not None and torch.equal(again.flatten().view(torch.uint8), first.flatten().view(torch.uint8))
        assert same, "gives other bits in another run of a deterministic program, and raises no alert"
    raise NotOffered(f"{operator} gives the same bits in {RUNS} runs, so no alert is needed")
