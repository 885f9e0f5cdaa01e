"""Every kind of registration, a section each: what is registered, and that it does what its kind is for.

A test here fails when the registration is removed: it looks at PyTorch's dispatch table, and at the behaviour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, place
from torch import Tensor


def registrations(operator: str) -> dict[str, str]:
    """The kernels that were registered for an operator: dispatch key -> source file, with "boxed" if it is."""
    found = {}
    for line in torch._C._dispatch_dump(operator).splitlines():
        match = re.match(r"(\w+)(?:\[alias\])?: registered at \S*?(\w+)\.cpp:\d+ :: (.*)", line)
        if match:
            key, source, kernel = match.groups()
            found.setdefault(key, source + (" boxed" if kernel.endswith("[ boxed ]") else ""))
    return found


def agree(function: Callable[..., Any], *arguments: Any) -> None:
    """`function` of copies of the arguments, on the device and on the CPU: results and arguments are the same after."""
    on_device, on_cpu = place(arguments, DEVICE), place(arguments, "cpu")
    assert_same(function(*on_device), function(*on_cpu))
    assert_same([t for t in on_device if isinstance(t, Tensor)], [t for t in on_cpu if isinstance(t, Tensor)])


# ---- Structured kernels over stubs ---------------------------------------------------------------------------------


def structured_operators() -> list[str]:
    """All operators that are registered in csrc/aten/OpenRegStructured.cpp."""
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return sorted(name for name in names if registrations(name).get("PrivateUse1") == "OpenRegStructured")


STRUCTURED = structured_operators()


def test_the_structured_operators_are_registered() -> None:
    assert len(STRUCTURED) >= 85
    assert {"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out", "aten::exp", "aten::lerp.Scalar"} < {*STRUCTURED}


def overload(name: str) -> torch._ops.OpOverload:
    operator, _, kind = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), kind or "default")


def other_arguments(operator: torch._ops.OpOverload) -> dict[str, Any]:
    """Values for the arguments that are not tensors."""
    values: dict[str, Any] = {"approximate": "none", "rounding_mode": "floor", "is_result": False}
    for argument in operator._schema.arguments:
        if str(argument.type) in ("number", "Optional[number]"):
            values[argument.name] = 0.5
        elif str(argument.type) == "bool":
            values.setdefault(argument.name, False)
    return {a.name: values[a.name] for a in operator._schema.arguments if a.name in values}


def call(operator: torch._ops.OpOverload, tensors: list[Tensor]) -> Any:
    given = iter(tensors)
    others = other_arguments(operator)
    keywords = {
        a.name: others[a.name] if a.name in others else next(given)
        for a in operator._schema.arguments
        if a.name in others or "Tensor" in str(a.type)
    }
    return operator(**keywords)


def tensor_arguments(operator: torch._ops.OpOverload) -> int:
    return sum("Tensor" in str(a.type) for a in operator._schema.arguments)


def positive(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Between 0.25 and 1: where every function of the list has a value."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.75 + 0.25).to(dtype)


def operand_sets(count: int, writes_first: bool) -> Iterator[tuple[str, list[Tensor]]]:
    """Operands for a call with `count` tensors, of which the first may be written: of all the layouts there are."""

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
    """What a call gives, or the sentence with which it is refused."""
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


@pytest.mark.parametrize("name", STRUCTURED)
def test_a_stub_computes_4m_elements_on_two_threads(name: str) -> None:
    # Where the work is split between threads: a kernel that took addresses from anywhere but the iterator would show.
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
            except (RuntimeError, NotImplementedError, ValueError, OverflowError) as error:
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
