"""A section for each kind of registration tests what is registered, and that the registrations have their effect.

A test here fails when the registration is removed: it looks at PyTorch's dispatch table, and at the behaviour.
"""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, place
from registered import call, operators_of, overload, positive, registrations, tensor_arguments
from torch import Tensor


def agree(function: Callable[..., Any], *arguments: Any) -> None:
    """Calls `function` on the device and on the CPU, and compares the results and the arguments afterwards."""
    on_device, on_cpu = place(arguments, DEVICE), place(arguments, "cpu")
    assert_same(function(*on_device), function(*on_cpu))
    assert_same([t for t in on_device if isinstance(t, Tensor)], [t for t in on_cpu if isinstance(t, Tensor)])


# ---- Structured kernels over stubs ---------------------------------------------------------------------------------


# For these operators PyTorch has one function for all devices, over a stub. They have a section of their own.
SHARED = ["abs.out", "fill_.Scalar", "masked_fill_.Scalar", "relu", "relu_", "where.self"]
STRUCTURED = [name for name in operators_of("OpenRegStructured") if name.removeprefix("aten::") not in SHARED]


def test_the_structured_operators_are_registered() -> None:
    assert len(STRUCTURED) >= 85
    assert {"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out", "aten::exp", "aten::lerp.Scalar"} < {*STRUCTURED}


def operand_sets(count: int, writes_first: bool) -> Iterator[tuple[str, list[Tensor]]]:
    """Operands for a call with `count` tensors, in each kind of layout. `writes_first`: the first one is written."""

    def make(shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
        return [positive(*shape, dtype=dtype, seed=seed) for seed in range(count)]

    yield "contiguous", make((5, 7))
    yield "nothing", make((0, 3))
    yield "0-dim", make(())
    yield "double", make((33,), torch.double)
    yield "half", make((33,), torch.half)
    yield "bfloat16", make((5, 7), torch.bfloat16)
    yield "transposed", [t.t() for t in make((5, 7))]
    yield "one transposed", [make((7, 7))[0], *(t.t() for t in make((7, 7))[1:])]
    yield "with steps and an offset", [t[1:, ::2] for t in make((6, 14))]
    yield "channels last", [t.to(memory_format=torch.channels_last) for t in make((2, 3, 4, 5))]
    if count > 1:
        yield "broadcast", [make((4, 5, 7))[0], *(positive(7, seed=seed) for seed in range(1, count))]
        yield "a column", [make((5, 7))[0], *(positive(5, 1, seed=seed) for seed in range(1, count))]
        yield "a 0-dim operand", [make((5, 7))[0], *(positive(seed=seed) for seed in range(1, count))]
        yield "two types", [make((5, 7))[0], *(t.double() if not writes_first else t.half() for t in make((5, 7))[1:])]
        yield "the same tensor", [make((5, 7))[0]] * count
    if count > 1 or not writes_first:
        yield "integers", [*make((5, 7))[:1], *(t.mul(4).long() for t in make((5, 7))[1:])]
    if not writes_first:
        yield "expanded", [t.expand(5, 7) for t in make((7,))]


def outcome(operator: torch._ops.OpOverload, tensors: list[Tensor]) -> Any:
    """The result of a call, or the sentence with which the call is refused."""
    try:
        return call(operator, tensors)
    except (RuntimeError, NotImplementedError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_structured_kernel_computes_what_the_cpu_computes(name: str) -> None:
    operator = overload(name)
    writes_first = operator._schema.arguments[0].is_write
    for kind, operands in operand_sets(tensor_arguments(operator), writes_first):
        on_device, on_cpu = place(operands, DEVICE), place(operands, "cpu")
        actual, expected = outcome(operator, on_device), outcome(operator, on_cpu)
        assert isinstance(actual, str) == isinstance(expected, str), f"{kind}: {actual}, on the CPU {expected}"
        try:
            assert_same(actual, expected)
            assert_same(on_device, on_cpu)
        except AssertionError as error:
            raise AssertionError(f"{kind}: {error}") from None


@pytest.mark.slow
@pytest.mark.parametrize("name", STRUCTURED)
def test_a_stub_computes_4m_elements_on_two_threads(name: str) -> None:
    # The threads share the work. A kernel that takes addresses from anywhere but the iterator gives wrong results.
    operator = overload(name)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        operands = [positive(2000, 2000, seed=seed) for seed in range(tensor_arguments(operator))]
        on_device = place(operands, DEVICE)
        assert_same(call(operator, on_device), call(operator, operands))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", [torch.float32, torch.double, torch.half, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("number", [2, -1.5, True, 1e10, 3 + 1j, float("nan")], ids=str)
def test_numbers_take_part_in_promotion_as_on_the_cpu(dtype: torch.dtype, number: complex) -> None:
    def each(x: Tensor) -> list[Any]:
        results: list[Any] = []
        for function in (
            lambda: x + number,
            lambda: number + x,
            lambda: x * number,
            lambda: x / number,
            lambda: number / x,
            lambda: x - number,
            lambda: number - x,
            lambda: x == number,
            lambda: x < number,
            lambda: x**number,
            lambda: x.add(x, alpha=number),
            lambda: x.clamp(max=number),  # type: ignore[arg-type]
            lambda: torch.maximum(x, torch.tensor(number)),
            lambda: x.clone().mul_(number),
        ):
            try:
                results.append(function())
            except (RuntimeError, NotImplementedError, TypeError, ValueError, OverflowError) as error:
                results.append(str(error).replace("_cpu", ""))
        return results

    values = torch.tensor([0.5, 1.0, 1.5, 3.0, -2.0]).to(dtype)
    assert_same(each(values.to(DEVICE)), each(values))


def test_a_0_dim_cpu_tensor_takes_part_in_promotion_as_on_the_cpu() -> None:
    for scalar in (torch.tensor(2.0), torch.tensor(2.0, dtype=torch.double), torch.tensor(3), torch.tensor(1j)):
        for tensor in (positive(5), positive(), positive(5, dtype=torch.half)):
            assert_same(tensor.to(DEVICE) * scalar, tensor * scalar)
            assert_same(scalar - tensor.to(DEVICE), scalar - tensor)
    with pytest.raises(RuntimeError, match="^Expected all tensors to be on the same device, but found at least two "):
        positive(5).to(DEVICE) + positive(5)


def test_out_is_resized_cast_and_checked_as_on_the_cpu() -> None:
    x, y = positive(5, 7), positive(5, 7, seed=1)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
        agree(lambda a, b, out: torch.mul(a, b, out=out), x, y, torch.zeros(3))
    for out in (
        torch.zeros(0),
        torch.zeros(7, 5).t(),
        torch.zeros(5, 14)[:, ::2],
        torch.zeros(5, 7, dtype=torch.double),
    ):
        agree(lambda a, b, out: torch.mul(a, b, out=out), x, y, out)
    agree(lambda a, b, out: torch.mul(a.t(), b.t(), out=out), x, y, torch.zeros(0))

    def overlapping(a: Tensor) -> str:
        with pytest.raises(RuntimeError) as error:
            torch.mul(a[1:], 2, out=a[:-1])
        return str(error.value)

    agree(overlapping, torch.ones(5))

    def too_small(a: Tensor, b: Tensor) -> str:
        with pytest.raises(RuntimeError) as error:
            a.add_(b)
        return str(error.value)

    agree(too_small, torch.ones(1), torch.ones(3))
    agree(too_small, torch.ones(1).expand(3), torch.ones(3))


def test_special_values_of_structured_kernels() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 3e38])
    for function in (torch.neg, torch.sqrt, torch.sign, torch.round, torch.exp, torch.reciprocal, torch.trunc):
        agree(function, special)
    for binary in (torch.maximum, torch.minimum, torch.atan2, torch.fmod, torch.remainder, torch.div, torch.pow):
        agree(binary, special.repeat(7), special.repeat_interleave(7))


def test_conjugate_and_negative_views_reach_structured_kernels_resolved() -> None:
    z = torch.randn(5, dtype=torch.cfloat, generator=torch.Generator().manual_seed(0))
    agree(lambda a: (a.conj() + a, a.conj() * 2, a.conj().imag.neg(), torch._neg_view(a.real) + 1), z)


# ---- Kernels that are one function for all devices, over stubs -----------------------------------------------------


@pytest.mark.parametrize("name", SHARED)
def test_a_shared_kernel_is_registered(name: str) -> None:
    assert registrations(f"aten::{name}")["PrivateUse1"] == "OpenRegStructured"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.cfloat])
@pytest.mark.parametrize("shape", [(), (0,), (5, 7), (2000, 2000)], ids=str)
def test_shared_kernels_compute_what_the_cpu_computes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)
    y, mask = x.flip(list(range(x.dim()))), (x.real if dtype.is_complex else x) > 0
    agree(lambda a, b, m: torch.where(m, a, b), x, y, mask)
    agree(lambda a, m: a.clone().masked_fill_(m, 2), x, mask)
    agree(lambda a: a.clone().fill_(2.5), x)
    if x.dim() == 2:
        agree(lambda a, b, m: torch.where(m.t(), a, b), x.t(), y.t()[:1], mask)
        agree(lambda a: (a[..., ::2].fill_(1), a), x)
    if dtype is not torch.bool and not dtype.is_complex:
        agree(lambda a: (torch.relu(a), torch.relu_(a.clone())), x)
    if dtype is not torch.bool:
        agree(lambda a: (torch.abs(a), a.t().abs() if a.dim() == 2 else a.expand(3, *a.shape).abs()), x)


def test_shared_kernels_promote_and_refuse_as_on_the_cpu() -> None:
    x, mask = positive(5), torch.tensor([True, False, True, False, True])
    agree(lambda a, m: torch.where(m, a, 2.0), x, mask)
    agree(lambda a, m: torch.where(m, a, a.double()), x, mask)
    agree(lambda a, m: torch.where(m, m, a), x, mask)
    agree(lambda a, out: torch.abs(a, out=out), x, torch.zeros(0))
    with pytest.raises(RuntimeError, match="^Found dtype Double but expected Float$"):
        torch.abs(x.to(DEVICE), out=torch.zeros(5, dtype=torch.double, device=DEVICE))
    with pytest.raises(RuntimeError, match="^expected self and mask to be on the same device, but got mask on cpu and"):
        x.to(DEVICE).masked_fill_(mask, 1)
    with pytest.raises(RuntimeError, match="^value cannot be converted to type float without overflow$"):
        x.to(DEVICE).fill_(1e300)


# ---- Overriding a composite default --------------------------------------------------------------------------------


def test_a_default_is_overridden() -> None:
    # PyTorch's composite kernel is still registered, for all other devices.
    found = registrations("aten::abs")
    assert (found["PrivateUse1"], found["CompositeExplicitAutograd"][:8]) == ("OpenRegOverrides", "Register")
    agree(lambda x: torch.autograd.grad(x.abs().sum(), x)[0], torch.tensor([-1.0, 0.0, 2.0], requires_grad=True))


def test_zero_clears_what_the_cpu_clears() -> None:
    assert registrations("aten::zero_")["PrivateUse1"] == "OpenRegExtra"
    for x in (
        torch.ones(3, 5),
        torch.ones(40_000),
        torch.ones(0),
        torch.ones(4, 4, dtype=torch.cfloat),
        torch.ones(()),
    ):
        agree(lambda a: a.zero_(), x)
        if x.dim() == 2:
            agree(lambda a: (a.t().zero_(), a), x)
            agree(lambda a: (a[:, 1:3].zero_(), a), x)


# ---- The overrideable operators, and kernels that only an accelerator needs ----------------------------------------


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("convolution_overrideable", "OpenRegOverrides"),
        ("convolution_backward_overrideable", "OpenRegOverrides"),
        ("_fused_sdp_choice", "OpenRegOverrides"),
        ("_scaled_dot_product_fused_attention_overrideable", "OpenRegOverrides"),
        ("_scaled_dot_product_fused_attention_overrideable_backward", "OpenRegOverrides"),
        ("_thnn_fused_lstm_cell", "OpenRegExtra"),
        ("_thnn_fused_gru_cell", "OpenRegExtra"),
        ("native_dropout", "OpenRegExtra"),
    ],
)
def test_an_operator_that_the_backend_supplies_is_registered(name: str, source: str) -> None:
    assert registrations(f"aten::{name}")["PrivateUse1"].removesuffix(" boxed") == source


def test_convolution_and_attention_reach_the_overrideable_operators() -> None:
    def called(function: Callable[[], Any]) -> set[str]:
        with torch.profiler.profile() as profile:
            function()
        return {event.key for event in profile.key_averages()}

    x, query = torch.ones(1, 1, 4, 4, device=DEVICE), torch.ones(1, 2, 4, 8, device=DEVICE)
    assert "aten::convolution_overrideable" in called(lambda: torch.conv2d(x, x[..., 1:, 1:]))
    attention = called(lambda: torch.nn.functional.scaled_dot_product_attention(query, query, query))
    assert "aten::_scaled_dot_product_fused_attention_overrideable" in attention


# ---- Custom operators in C++ ---------------------------------------------------------------------------------------


def test_a_custom_operator_has_every_kind_of_kernel() -> None:
    found = registrations("openreg::custom_abs")
    keys = {"PrivateUse1", "Meta", "AutogradPrivateUse1", "AutocastPrivateUse1", "FuncTorchBatched"}
    assert found == dict.fromkeys(keys, "OpenRegExtra")
    assert str(torch.ops.openreg.custom_abs.default._schema) == "openreg::custom_abs(Tensor input) -> Tensor"


def test_a_custom_kernel_computes() -> None:
    x = torch.tensor([-1.5, 0.0, -0.0, float("nan"), -float("inf"), 2.0])
    for values in (x, x.half(), x[1:].repeat(20_000), x.nan_to_num(0, 0, 0).int(), torch.ones(2, 3).t(), torch.ones(0)):
        assert_same(torch.ops.openreg.custom_abs(values.to(DEVICE)), values.abs().contiguous())
    with pytest.raises(
        NotImplementedError, match="Could not run 'openreg::custom_abs' with arguments from the 'CPU' back"
    ):
        torch.ops.openreg.custom_abs(x)


def test_a_custom_meta_kernel_gives_the_shape() -> None:
    result = torch.ops.openreg.custom_abs(torch.empty(2, 3, dtype=torch.half, device="meta").t())
    assert (result.shape, result.stride(), result.dtype) == ((3, 2), (2, 1), torch.half)


def test_a_custom_derivative_of_its_own_key() -> None:
    x = torch.tensor([-3.0, 2.0, 0.0], device=DEVICE, requires_grad=True)
    y = torch.ops.openreg.custom_abs(x)
    assert y.grad_fn is not None and "CustomAbs" in y.grad_fn.name()
    (gradient,) = torch.autograd.grad((y * y).sum(), x, create_graph=True)
    assert gradient.tolist() == [-6.0, 4.0, 0.0]
    assert torch.autograd.grad(gradient.sum(), x)[0].tolist() == [2.0, 2.0, 0.0]
    wide = torch.tensor([-3.0, 2.0], dtype=torch.double, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(torch.ops.openreg.custom_abs, wide)


@pytest.mark.parametrize("aliasing", [False, True])
def test_a_custom_derivative_as_an_autograd_function(aliasing: bool) -> None:
    name = "custom_autograd_fn_aliasing" if aliasing else "custom_autograd_fn_returns_self"
    assert registrations(f"openreg::{name}") == {"Autograd": "OpenRegExtra"}
    operator = getattr(torch.ops.openreg, name)
    x = torch.ones(3, device=DEVICE, requires_grad=True)
    y = operator(x)
    y.sum().backward()
    assert x.grad is not None and x.grad.tolist() == [0.5] * 3
    assert y is not x and y.data_ptr() == x.data_ptr()
    compiled = torch.compile(lambda t: operator(t) * 2, backend="aot_eager")(x)
    assert torch.autograd.grad(compiled.sum(), x)[0].tolist() == [1.0] * 3


def test_a_custom_operator_under_autocast() -> None:
    x = torch.tensor([-1.0, 2.0], dtype=torch.half, device=DEVICE)
    assert torch.ops.openreg.custom_abs(x).dtype is torch.half
    with torch.autocast(DEVICE):
        assert_same(torch.ops.openreg.custom_abs(x), torch.tensor([1.0, 2.0]))


def test_a_custom_operator_under_vmap() -> None:
    x = torch.randn(4, 3, 2, generator=torch.Generator().manual_seed(0))
    operator = torch.ops.openreg.custom_abs
    assert_same(torch.vmap(operator)(x.to(DEVICE)), x.abs())
    assert_same(torch.vmap(torch.vmap(operator, 1), 0, 2)(x.to(DEVICE)), torch.vmap(torch.vmap(torch.abs, 1), 0, 2)(x))


def test_a_batching_rule_is_not_a_loop() -> None:
    torch._C._functorch._set_vmap_fallback_enabled(False)
    try:
        torch.vmap(torch.ops.openreg.custom_abs)(torch.ones(2, 3, device=DEVICE))
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(True)


def test_an_operator_in_an_existing_namespace() -> None:
    operator = torch.ops.aten.openreg_hypotenuse
    assert registrations("aten::openreg_hypotenuse") == {"CompositeImplicitAutograd": "OpenRegExtra"}
    x, y = torch.tensor([3.0, 5.0]), torch.tensor([4.0, 12.0])
    for device in (DEVICE, "cpu"):
        assert operator(x.to(device), y.to(device)).tolist() == [5.0, 13.0]
    agree(lambda a, b: torch.autograd.grad(operator(a, b).sum(), (a, b)), x.requires_grad_(), y.requires_grad_())
    assert torch.vmap(operator, (0, None))(x.detach(), y[0].detach()).shape == (2,)
    assert operator(x.detach().to("meta"), y.detach().to("meta")).shape == (2,)


# ---- Custom operators in Python ------------------------------------------------------------------------------------


def test_the_example_of_operators_in_python(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(__file__).parents[2] / "examples" / "custom_operators.py"
    kept = runpy.run_path(str(path), run_name="__main__")  # an operator lives as long as its library
    printed = dict(line.split(None, 1) for line in capsys.readouterr().out.splitlines())
    x = torch.linspace(-3, 3, 7, requires_grad=True)
    y = torch.tanh(x / 2.0) * 2.0
    assert printed["result"] == str(y.tolist())
    gradient = 1 - (y.detach() / 2.0) ** 2
    assert printed["gradient"] == str(gradient.tolist())
    assert (printed["autocast"], printed["vmap"]) == ("torch.float32", "True")
    assert printed["halve"] == str((x.detach() * 0.5).tolist())
    refused = "Could not run 'openreg_example::soft_clip' with arguments from the 'CPU' backend"
    assert printed["on"] == f"a CPU tensor: {refused}"
    found = registrations("openreg_example::soft_clip")
    assert {"PrivateUse1", "Meta", "Autograd", "AutocastPrivateUse1", "FuncTorchBatched"} <= {*found}, found
    del kept


# ---- Fallbacks and fallthrough -------------------------------------------------------------------------------------


def test_the_global_fallback_runs_what_has_no_kernel() -> None:
    assert "PrivateUse1" not in registrations("aten::kthvalue")
    agree(lambda x: torch.kthvalue(x, 2), positive(5))


def test_the_fallback_per_operator_runs_what_has_a_composite_kernel() -> None:
    found = registrations("aten::renorm")
    assert found["PrivateUse1"] == "OpenRegFallback boxed" and "CompositeExplicitAutogradNonFunctional" in found
    agree(lambda x: torch.renorm(x, 2, 0, 0.5), positive(5, 7))


def test_the_fallback_of_another_layout() -> None:
    assert registrations("aten::copy_")["SparseCsrPrivateUse1"] == "OpenRegFallback"
    agree(lambda x: x.to_sparse_csr() @ x, positive(5, 5))


def test_autocast_falls_through_where_no_list_names_the_operator() -> None:
    assert "AutocastPrivateUse1" not in registrations("aten::add.Tensor")
    table = torch._C._dispatch_dump_table("aten::add.Tensor")
    assert re.search(
        r"AutocastPrivateUse1: fallthrough registered at .*OpenRegAutocast.cpp:\d+ \[backend fallback\]", table
    )
    with torch.autocast(DEVICE):
        assert (torch.ones(2, device=DEVICE) + torch.ones(2, device=DEVICE)).dtype is torch.float32
