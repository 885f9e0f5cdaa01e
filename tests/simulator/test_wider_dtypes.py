"""Operators that CUDA computes in dtypes for which the CPU has no kernel: the result is that of the CPU in a wider dtype,
rounded, bit for bit."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import programs
import pytest
import torch
from comparison import DEVICE, comparable, leaves, place
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import tree_map

from tests.simulator.device_models.wider import CELLS, TRANSFORMS

half, bfloat16 = torch.float16, torch.bfloat16
WIDE = {half: torch.float32, bfloat16: torch.float32, torch.bool: torch.uint8, torch.complex32: torch.complex64}


def operator(name: str) -> OpInfo:
    (found,) = [op for op in op_db if ".".join(filter(None, (op.name, op.variant_test_name))) == name]
    return found


def widened(tree: Any, dtype: torch.dtype) -> Any:
    def widen(leaf: Any) -> Any:
        if leaf is dtype:
            return WIDE[dtype]
        if not isinstance(leaf, torch.Tensor) or leaf.dtype is not dtype:
            return leaf
        return leaf.detach().to(WIDE[dtype]).requires_grad_(leaf.requires_grad)

    return tree_map(widen, tree)


def results(op: OpInfo, sample: SampleInput) -> list[torch.Tensor]:
    """The results, and the gradients of the inputs."""
    torch.manual_seed(0)
    found = [leaf for leaf in leaves(op(sample.input, *sample.args, **sample.kwargs)) if isinstance(leaf, torch.Tensor)]
    inputs = [leaf for leaf in leaves((sample.input, sample.args)) if isinstance(leaf, torch.Tensor)]
    wanted = [leaf for leaf in inputs if leaf.requires_grad]
    if wanted and found[0].requires_grad:
        found += torch.autograd.grad(found[0], wanted, torch.ones_like(found[0]))
    return found


@pytest.mark.parametrize(("name", "dtype"), CELLS)
def test_the_result_is_that_of_the_wider_dtype_rounded(name: str, dtype: torch.dtype) -> None:
    op = operator(name)
    differentiable = dtype.is_floating_point and op.supports_autograd
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    assert samples
    for sample in samples:
        parts = (sample.input, sample.args, sample.kwargs)
        on_device, wide = place(parts, DEVICE), widened(parts, dtype)
        actual = results(op, SampleInput(on_device[0], args=on_device[1], kwargs=on_device[2]))
        expected = results(op, SampleInput(wide[0], args=wide[1], kwargs=wide[2]))
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            # The angle of a complex32 is a float16. Other dtypes than the wider one stay: int64, and float32 of bool.
            real = {torch.float32: half} if dtype is torch.complex32 else {}
            assert a.dtype == {WIDE[dtype]: dtype, **real}.get(b.dtype, b.dtype)
            for x, y in zip(comparable(a), comparable(b.detach().to(a.dtype)), strict=True):
                assert torch.equal(x.nan_to_num(), y.nan_to_num())


def test_a_result_has_the_dtype_that_the_operands_promote_to_or_that_was_asked_for() -> None:
    x = torch.tensor([1 + 2j, 3 - 1j], device=DEVICE)
    half = x.to(torch.complex32)
    other = torch.tensor([0.5, 2.0], device=DEVICE)
    assert torch.equal(half / other, x / other)  # complex64
    assert torch.equal(half / other.half(), (x / other).to(torch.complex32))
    assert torch.equal(other.half().pow(half), other.pow(x).to(torch.complex32))
    assert torch.equal(half.sum(dtype=torch.complex64), x.sum())
    assert torch.equal(x.sum(dtype=torch.complex32), x.sum().to(torch.complex32))
    assert half.sin_() is half and torch.equal(half, x.sin().to(torch.complex32))


@pytest.mark.parametrize("mode", ["inline", "async"])
def test_out_is_resized_and_written_and_an_operator_in_place_returns_its_tensor(mode: str) -> None:
    with torch.openreg.execution_mode(mode):  # type: ignore[attr-defined]
        x = torch.arange(8, dtype=half).reshape(1, 1, 2, 2, 2)
        out = torch.empty(0, dtype=half, device=DEVICE)
        torch.ops.aten.avg_pool3d(x.to(DEVICE), 2, out=out)
        assert out.shape == (1, 1, 1, 1, 1) and out.item() == 3.5
        numbers = torch.tensor([1.26, -2.34], dtype=half, device=DEVICE)
        assert numbers.round_(decimals=1) is numbers
        assert numbers.tolist() == torch.tensor([1.3, -2.3], dtype=half).tolist()
        mask = torch.tensor([True, False], device=DEVICE)
        assert mask.abs_() is mask and torch.abs(mask, out=torch.empty_like(mask)).tolist() == [True, False]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    parts = zip(comparable(a.detach()), comparable(b.detach()), strict=True)
    return a.dtype is b.dtype and all(torch.equal(x, y) for x, y in parts)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64, torch.complex128])
def test_nansum_and_nanmean_take_a_complex_number_as_zero_if_one_of_its_parts_is_nan(dtype: torch.dtype) -> None:
    nan = float("nan")
    x = torch.tensor([[1 + 2j, complex(nan, 1)], [complex(3, nan), 4 - 1j]]).to(dtype)
    on_device = x.to(DEVICE).requires_grad_()
    wide = x.to(WIDE.get(dtype, dtype))
    numbers = torch.where(wide.isnan(), 0, wide)
    for dim in (None, 0, [0, 1], []):
        for keepdim in (False, True):
            expected = numbers.sum(dim, keepdim)
            actual = on_device.nansum(dim, keepdim)
            assert actual.dtype is dtype and same(actual, expected.to(dtype))
            out = torch.empty(0, dtype=dtype, device=DEVICE)
            assert torch.nansum(x.to(DEVICE), dim, keepdim, out=out) is out and same(out, actual)
            mean = expected.to(dtype).to(wide.dtype) / x.isnan().logical_not().sum(dim, keepdim)
            assert same(on_device.nanmean(dim, keepdim), mean.to(dtype))
    (gradient,) = torch.autograd.grad(on_device.nansum(), on_device, torch.ones((), dtype=dtype, device=DEVICE))
    assert same(gradient, torch.tensor([[1, 0], [0, 1]]).to(dtype))


@pytest.fixture
def warn_always() -> Iterator[None]:
    """PyTorch gives a warning that it otherwise gives once in a process, which another test may have had."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.usefixtures("warn_always")
def test_nansum_of_other_numbers_in_a_complex_dtype_and_the_reverse() -> None:
    x = torch.tensor([1.5, float("nan"), 2.0], device=DEVICE)
    assert x.nansum(dtype=torch.complex64).item() == 3.5 + 0j
    out = torch.empty((), dtype=torch.complex128, device=DEVICE)
    assert torch.nansum(x, (), out=out).item() == 3.5 + 0j
    with pytest.warns(UserWarning, match="Casting complex values to real discards the imaginary part"):
        assert x.to(torch.complex64).nansum(dtype=torch.float32).item() == 3.5
    with pytest.raises(RuntimeError, match="Expected out tensor to have device openreg:0, but got cpu instead"):
        torch.nansum(x, (), out=torch.empty((), dtype=torch.complex64))


def test_other_dtypes_are_refused_in_the_cpus_words() -> None:
    with pytest.raises(NotImplementedError, match=re.escape("\"avg_pool3d_out_frame\" not implemented for 'Int'")):
        torch.nn.functional.avg_pool3d(torch.ones(1, 1, 2, 2, 2, dtype=torch.int32, device=DEVICE), 2)


FFT = """
import sys, torch
torch.manual_seed(0)
x = torch.randn(4, 8)
for line in sys.argv[1].split():
    name, dtype = line.split(",")
    half = (torch.complex(x, x.roll(1)) if dtype == "complex32" else x).to(getattr(torch, dtype))
    if name.startswith(("hfft", "irfft")):
        half = half[:, :5]  # gives 8 numbers
    actual = getattr(torch.fft, name)(half.cuda())
    expected = getattr(torch.fft, name)(half.to(torch.complex64 if half.is_complex() else torch.float32))
    assert actual.dtype == (torch.complex32 if expected.is_complex() else torch.float16), line
    actual, rounded = actual.cpu().to(expected.dtype), expected.to(actual.dtype).to(expected.dtype)
    if name in ("hfft2", "hfftn", "ihfft2", "ihfftn"):  # two operators: the result of the first is rounded too
        torch.testing.assert_close(actual, rounded, rtol=0, atol=2 * torch.finfo(torch.float16).eps * rounded.abs().max().item())
    else:
        assert torch.equal(actual, rounded), line
try:
    torch.fft.fft(torch.ones(3, 5, dtype=torch.float16, device="cuda"))
except RuntimeError as error:
    print(error)
"""


def test_fourier_transforms_in_half_precision_under_the_name_cuda() -> None:
    calls = " ".join(f"{name.removeprefix('fft.')},{str(dtype).removeprefix('torch.')}" for name, dtype in TRANSFORMS)
    expected = (
        "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a signal "
        "size of[5]\n"
    )
    programs.python(FFT, calls, TORCH_OPENREG_AS="cuda", status=0, output=expected)
