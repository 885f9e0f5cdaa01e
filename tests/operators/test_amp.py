"""Automatic mixed precision: autocast casts what CUDA casts, and GradScaler skips a step with inf or NaN."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, assert_same
from torch import Tensor

from torch_openreg import openreg
from torch_openreg._cli import train_digits

MODULE = torch.get_device_module(DEVICE)
DEVICE_TYPE = torch.device(DEVICE).type
LOW = [torch.float16, torch.bfloat16]


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(*shape, dtype=dtype, device=DEVICE)


LOWERED: dict[str, Callable[[], Tensor]] = {
    "mm": lambda: ones(2, 3).mm(ones(3, 2)),
    "matmul": lambda: ones(2, 2, 3) @ ones(3, 2),
    "bmm": lambda: torch.bmm(ones(1, 2, 3), ones(1, 3, 2)),
    "addmm": lambda: torch.addmm(ones(2, 2), ones(2, 3), ones(3, 2)),
    "linear": lambda: F.linear(ones(2, 3), ones(4, 3), ones(4)),
    "conv1d": lambda: F.conv1d(ones(1, 2, 5), ones(3, 2, 2)),
    "conv2d": lambda: F.conv2d(ones(1, 2, 5, 5), ones(3, 2, 2, 2)),
    "conv_transpose2d": lambda: F.conv_transpose2d(ones(1, 2, 3, 3), ones(2, 3, 2, 2)),
    "attention": lambda: F.scaled_dot_product_attention(ones(1, 1, 3, 4), ones(1, 1, 3, 4), ones(1, 1, 3, 4)),
    "prelu": lambda: F.prelu(ones(1, 2), ones(2)),
}
FULL: dict[str, Callable[[torch.dtype], Tensor]] = {
    "exp": lambda d: ones(3, dtype=d).exp(),
    "log": lambda d: ones(3, dtype=d).log(),
    "pow": lambda d: ones(3, dtype=d).pow(2.5),
    "asin": lambda d: ones(3, dtype=d).asin(),
    "softplus": lambda d: F.softplus(ones(3, dtype=d)),
    "norm": lambda d: ones(3, dtype=d).norm(),
    "layer_norm": lambda d: F.layer_norm(ones(2, 3, dtype=d), (3,)),
    "mse_loss": lambda d: F.mse_loss(ones(3, dtype=d), ones(3, dtype=d)),
    "softmax": lambda d: ones(3, dtype=d).softmax(0),
    "sum": lambda d: ones(3, dtype=d).sum(),
    "cumsum": lambda d: ones(3, dtype=d).cumsum(0),
}


@pytest.mark.parametrize("dtype", LOW, ids=str)
@pytest.mark.parametrize("call", LOWERED.values(), ids=LOWERED.keys())
def test_autocast_casts_to_the_lower_precision(call: Callable[[], Tensor], dtype: torch.dtype) -> None:
    with torch.autocast(DEVICE_TYPE, dtype=dtype):
        assert call().dtype is dtype
    assert call().dtype is torch.float32


@pytest.mark.parametrize("call", FULL.values(), ids=FULL.keys())
def test_autocast_keeps_in_float32(call: Callable[[torch.dtype], Tensor]) -> None:
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert call(torch.bfloat16).dtype is torch.float32
        assert call(torch.float32).dtype is torch.float32


@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_autocast_promotes_to_the_widest_or_leaves_alone(dtype: torch.dtype) -> None:
    low, wide = ones(3, dtype=dtype), ones(3)
    with torch.autocast(DEVICE_TYPE, dtype=dtype):
        assert torch.addcmul(low, low, wide).dtype is torch.float32
        assert torch.addcmul(low, low, low).dtype is dtype
        assert (low + wide).dtype is torch.float32
        assert (low + low).dtype is dtype
        assert low.relu().dtype is dtype


def test_the_default_dtype_is_half_precision_as_on_cuda() -> None:
    with torch.autocast(DEVICE_TYPE):
        assert torch.get_autocast_dtype(DEVICE_TYPE) is torch.float16
        assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float16


def test_autocast_nests_and_can_be_switched_off_inside() -> None:
    a = ones(2, 2)
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert torch.is_autocast_enabled(DEVICE_TYPE)
        with torch.autocast(DEVICE_TYPE, enabled=False):
            assert (a @ a).dtype is torch.float32
        with torch.autocast(DEVICE_TYPE, dtype=torch.float16):
            assert (a @ a).dtype is torch.float16
        assert (a @ a).dtype is torch.bfloat16
    assert not torch.is_autocast_enabled(DEVICE_TYPE)


def test_autocast_of_the_device_leaves_cpu_tensors_alone_and_the_other_way_round() -> None:
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float32
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float32


@pytest.mark.only_on("openreg", reason="CUDA's lists are PyTorch's own")
def test_every_operator_that_cuda_casts_is_cast() -> None:
    openreg.init()  # registers the casts
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::")]

    def cast_by(key: str) -> set[str]:
        return {name for name in names if torch._C._dispatch_has_kernel_for_dispatch_key(name, key)}

    only_cudas = {"aten::_cudnn_rnn", "aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}
    assert cast_by("AutocastCUDA") - only_cudas == cast_by("AutocastPrivateUse1")


def test_float64_is_not_cast() -> None:
    a = ones(2, 2, dtype=torch.float64)
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert (a @ a).dtype is torch.float64


def test_lowered_values_are_those_of_the_lowered_operands() -> None:
    a, b = torch.randn(8, 8), torch.randn(8, 8)
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        actual = a.to(DEVICE) @ b.to(DEVICE)
    assert_same(actual, a.bfloat16() @ b.bfloat16())


def test_weights_are_cast_once_in_a_region() -> None:
    weight = ones(3, 3).requires_grad_()
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        first, second = ones(2, 3) @ weight, ones(2, 3) @ weight
    node = [out.grad_fn.next_functions[1][0] for out in (first, second)]  # type: ignore[union-attr]
    assert node[0] is node[1]
    (first.sum() + second.sum()).backward()
    assert weight.grad is not None
    assert weight.grad.dtype is torch.float32


def test_weights_are_cast_each_time_without_the_cache() -> None:
    weight = ones(3, 3).requires_grad_()
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16, cache_enabled=False):
        first, second = ones(2, 3) @ weight, ones(2, 3) @ weight
    node = [out.grad_fn.next_functions[1][0] for out in (first, second)]  # type: ignore[union-attr]
    assert node[0] is not node[1]


def test_the_cache_is_gone_after_the_outermost_region() -> None:
    weight = ones(3, 3).requires_grad_()
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert (ones(2, 3) @ weight)[0, 0].item() == 3
    with torch.no_grad():
        weight.fill_(2.0)
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        assert (ones(2, 3) @ weight)[0, 0].item() == 6


@pytest.mark.only_on("openreg", reason="torch.autocast takes any dtype for cuda (torch/amp/autocast_mode.py)")
def test_an_unsupported_dtype_warns_and_disables_autocast() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with torch.autocast(DEVICE_TYPE, dtype=torch.int8):
            assert (ones(2, 2) @ ones(2, 2)).dtype is torch.float32
    text = "\n".join(str(w.message) for w in caught)
    assert f"In {DEVICE_TYPE} autocast, but the target dtype" in text
    assert "torch.float16, torch.bfloat16" in text or "torch.bfloat16, torch.float16" in text


def test_binary_cross_entropy_is_refused() -> None:
    with (
        torch.autocast(DEVICE_TYPE),
        pytest.raises(
            RuntimeError, match="torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast"
        ),
    ):
        F.binary_cross_entropy(ones(3), ones(3))


@pytest.mark.only_on("openreg", reason="PyTorch does not ask torch.cuda")
def test_float16_and_bfloat16_are_supported() -> None:
    assert set(MODULE.get_amp_supported_dtype()) >= {torch.float16, torch.bfloat16}
    assert torch.amp.is_autocast_available(DEVICE_TYPE)


def test_custom_forward_and_backward_run_under_the_state_they_ask_for() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=DEVICE_TYPE, cast_inputs=torch.float32)
        def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
            assert not torch.is_autocast_enabled(DEVICE_TYPE)
            assert x.dtype is torch.float32
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE_TYPE)
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
            (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
            return 2 * x * grad

    x = ones(3, dtype=torch.float16).requires_grad_()
    with torch.autocast(DEVICE_TYPE):
        y = Square.apply(x)
    y.sum().backward()
    assert_same(x.grad, torch.full((3,), 2.0, dtype=torch.float16))


def test_custom_backward_runs_under_the_forwards_autocast_state() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=DEVICE_TYPE)
        def forward(ctx: torch.autograd.function.FunctionCtx, a: Tensor, b: Tensor) -> Tensor:
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type=DEVICE_TYPE)
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            a, b = ctx.saved_tensors  # type: ignore[attr-defined]
            states.append(torch.is_autocast_enabled(DEVICE_TYPE))
            return grad @ b.t(), a.t() @ grad

    states: list[bool] = []
    a, b = ones(2, 2).requires_grad_(), ones(2, 2).requires_grad_()
    with torch.autocast(DEVICE_TYPE, dtype=torch.bfloat16):
        inside = Product.apply(a, b)
    assert inside.dtype is torch.bfloat16
    inside.sum().backward()
    Product.apply(a, b).sum().backward()
    assert states == [True, False]


@pytest.mark.only_on("openreg", reason="the functions are for CUDA, and follow its autocast")
def test_a_custom_forward_for_another_device_warns_once_that_it_casts_nothing() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float16)
        def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
            return grad

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Square.apply(ones(3))  # no autocast is on
        with torch.autocast("cpu"):
            Square.apply(ones(3))
        with torch.autocast(DEVICE_TYPE, dtype=torch.float16):
            Square.apply(torch.ones(3))  # not on the device
            assert [str(each.message) for each in caught] == []
            for _ in range(2):
                assert Square.apply(ones(3).requires_grad_()).dtype is torch.float32
    assert [str(each.message) for each in caught] == [
        f"{Square.__qualname__}.forward got a tensor on 'openreg' while torch.autocast('openreg') is on, but its "
        "custom_fwd(device_type='cuda') follows only torch.autocast('cuda'), so it casts nothing. Pass "
        "device_type='openreg' for tensors of this device."
    ]
    assert caught[0].filename == __file__  # the line that calls apply(), and not PyTorch's


# ---- GradScaler ----------------------------------------------------------------------------------------------------


def step(scaler: torch.amp.GradScaler, weight: Tensor, gradient: float) -> bool:
    """One scaled step with the given gradient; whether the weight changed."""
    before = weight.detach().clone()
    optimizer = torch.optim.SGD([weight], lr=0.5)
    scaler.scale((weight * gradient).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    return not torch.equal(before, weight.detach())


def test_grad_scaler_scales_unscales_and_grows() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=4.0, growth_interval=2)
    weight = ones(2).requires_grad_()
    assert step(scaler, weight, 1.0)
    assert_same(weight.detach(), torch.full((2,), 0.5))
    assert scaler.get_scale() == 4.0
    assert step(scaler, weight, 1.0)
    assert scaler.get_scale() == 8.0


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
def test_grad_scaler_skips_a_step_with_inf_or_nan_and_backs_off(bad: float) -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=4.0)
    weight = ones(2).requires_grad_()
    assert not step(scaler, weight, bad)
    assert scaler.get_scale() == 2.0
    assert step(scaler, weight, 1.0)


def test_grad_scaler_unscale_allows_clipping() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=1024.0)
    weight = ones(4).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale((weight * 3).sum()).backward()
    scaler.unscale_(optimizer)
    assert_same(weight.grad, torch.full((4,), 3.0))
    assert torch.nn.utils.clip_grad_norm_([weight], 1.0).item() == 6.0


def test_grad_scaler_refuses_calls_out_of_order() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE)
    weight = ones(2).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    scaler.unscale_(optimizer)
    with pytest.raises(
        RuntimeError, match=r"^unscale_\(\) has already been called on this optimizer since the last update"
    ):
        scaler.unscale_(optimizer)
    scaler.step(optimizer)
    with pytest.raises(RuntimeError, match=r"^step\(\) has already been called since the last update\(\)\.$"):
        scaler.step(optimizer)
    scaler.update()
    with pytest.raises(AssertionError, match=r"^No inf checks were recorded prior to update\.$"):
        scaler.update()


def test_grad_scaler_refuses_gradients_in_half_precision() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE)
    weight = ones(2, dtype=torch.float16).requires_grad_()
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler.scale(weight.sum()).backward()
    with pytest.raises(ValueError, match=r"^Attempting to unscale FP16 gradients\.$"):
        scaler.step(optimizer)


def test_an_inf_in_one_optimizers_gradients_leaves_the_other_ones_step() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=4.0)
    good, bad = ones(2).requires_grad_(), ones(2).requires_grad_()
    optimizers = [torch.optim.SGD([weight], lr=1.0) for weight in (good, bad)]
    scaler.scale(good.sum() + (bad * float("inf")).sum()).backward()
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    assert_same((good.detach(), bad.detach()), (torch.zeros(2), torch.ones(2)))
    assert scaler.get_scale() == 2.0


def test_grad_scaler_state_is_saved_and_loaded() -> None:
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=4.0)
    step(scaler, ones(1).requires_grad_(), float("inf"))
    other = torch.amp.GradScaler(DEVICE_TYPE)
    other.load_state_dict(scaler.state_dict())
    assert other.get_scale() == 2.0


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", LOW, ids=str)
def test_a_model_trains_in_mixed_precision(dtype: torch.dtype, fused: bool) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LayerNorm(32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=fused)
    scaler = torch.amp.GradScaler(DEVICE_TYPE, enabled=dtype is torch.float16)
    x = torch.randn(64, 8, device=DEVICE)
    y = x.sum(1, keepdim=True)
    losses = []
    for _ in range(60):
        optimizer.zero_grad()
        with torch.autocast(DEVICE_TYPE, dtype=dtype):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10
    assert all(p.dtype is torch.float32 for p in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [None, *LOW], ids=str)
def test_the_digits_are_learned_in_each_precision(dtype: torch.dtype | None) -> None:
    pytest.importorskip("sklearn", reason="the images are scikit-learn's")
    torch.manual_seed(0)
    data = {name: value.to(DEVICE) for name, value in train_digits.load_digits().items()}
    # No convolution: the CPU's in float16 takes seconds.
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model.to(DEVICE)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    # The first scale overflows float16: training begins with steps that are skipped.
    scaler = torch.amp.GradScaler(DEVICE_TYPE, init_scale=2.0**24, enabled=dtype is torch.float16)
    steps = torch.randperm(len(data["train_x"]), device=DEVICE).split(64)
    for step in steps * 6:
        optimizer.zero_grad()
        with torch.autocast(DEVICE_TYPE, dtype=dtype, enabled=dtype is not None):
            loss = F.cross_entropy(model(data["train_x"][step]), data["train_y"][step])
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    with torch.autocast(DEVICE_TYPE, dtype=dtype, enabled=dtype is not None):
        logits, accuracy = train_digits.evaluate(model, data["test_x"], data["test_y"])
    assert logits.dtype is (dtype or torch.float32)
    assert accuracy > 0.95
    if scaler.is_enabled():
        assert 1.0 <= scaler.get_scale() < 2.0**24, "no step was skipped"
