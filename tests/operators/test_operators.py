"""Operators, by kind: results, dtypes, strides and side effects are the CPU's, bit for bit.

`test_ops_opinfo.py` tests every operator with PyTorch's database. This file tests what the database does not ask: sizes
at which kernels change, factories, type promotion, `out=`, foreach and fused operators, and operators for which the
backend has a kernel of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, DEVICE_0, assert_same, leaves, place
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch.fx.experimental.proxy_tensor import make_fx


def check(function: Callable[..., Any], *arguments: Any) -> Any:
    """Runs `function` on the device and on the CPU, with copies of its arguments, and compares results or errors."""
    on_device, on_cpu = place(arguments, DEVICE), place(arguments, "cpu")
    torch.manual_seed(0)
    try:
        expected = function(*on_cpu)
    except Exception as error:  # e.g. bfloat16 with a complex number: PyTorch 2.15 has no kernels for BComplex32
        with pytest.raises(type(error), match=f"^{re.escape(str(error))}$"):
            function(*on_device)
        return None
    torch.manual_seed(0)
    actual = function(*on_device)
    assert_same(actual, expected)
    assert_same([t for t in on_device if isinstance(t, Tensor)], [t for t in on_cpu if isinstance(t, Tensor)])
    return actual


def randn(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


# ---- Elementwise and reductions, from no elements to more than one thread's share ----------------------------------

SIZES = [0, 1, 7, 1000, 70_001, 4_000_000]
UNARY = [torch.relu, torch.exp, torch.sigmoid, torch.neg, F.gelu, torch.isnan]
BINARY = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.lt, torch.atan2]
REDUCTIONS = [
    torch.sum,
    torch.mean,
    torch.prod,
    torch.amax,
    torch.argmin,
    torch.logsumexp,
    torch.var,
    torch.linalg.vector_norm,
]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", UNARY, ids=lambda f: f.__name__)
def test_unary(function: Callable[..., Any], size: int) -> None:
    check(function, randn(size))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("function", BINARY, ids=lambda f: f.__name__)
def test_binary(function: Callable[..., Any], size: int) -> None:
    check(function, randn(size), randn(size, seed=1))


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("function", REDUCTIONS, ids=lambda f: f.__name__)
def test_reduction(function: Callable[..., Any], size: int) -> None:
    # Every function gets a dimension, because logsumexp requires one.
    check(lambda t: function(t, dim=0), randn(size))


@pytest.mark.parametrize("function", [torch.sum, torch.amax, torch.var_mean], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dim", [0, 1, (0, 2)])
def test_reduction_over_a_dimension_of_a_large_tensor(function: Callable[..., Any], dim: int | tuple[int, ...]) -> None:
    check(lambda t: function(t, dim=dim, keepdim=True), randn(128, 60, 300))


def test_a_full_reduction_of_a_large_tensor_with_several_threads() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for function in (torch.sum, torch.max, torch.any):
            check(function, randn(4_000_003))
        check(lambda a, b: a @ b, randn(300, 400), randn(400, 500, seed=1))
        check(lambda *t: torch.cat(t), randn(2_000_000), randn(2_000_001))
    finally:
        torch.set_num_threads(threads)


def test_special_values() -> None:
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, 3e38])
    for function in (torch.exp, torch.sqrt, torch.sign, torch.isinf, torch.nan_to_num, torch.floor, torch.signbit):
        check(function, special)
    check(torch.max, special)
    check(lambda t: t.sort(), special)


# ---- Type promotion ------------------------------------------------------------------------------------------------

PROMOTED = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("second", PROMOTED, ids=str)
@pytest.mark.parametrize("first", PROMOTED, ids=str)
def test_two_dtypes_promote_as_on_the_cpu(first: torch.dtype, second: torch.dtype) -> None:
    a, b = randn(3, 4).mul(3).to(first), randn(3, 4, seed=1).mul(3).to(second)
    check(torch.add, a, b)
    check(torch.mul, a, b[0, 0])
    check(lambda x, y: x == y, a, b)
    check(lambda x, y: torch.where(x == y, x, y), a, b)


@pytest.mark.parametrize("scalar", [2, 2.5, True, 1 + 2j], ids=repr)
@pytest.mark.parametrize("dtype", PROMOTED, ids=str)
def test_a_python_scalar_promotes_as_on_the_cpu(dtype: torch.dtype, scalar: complex) -> None:
    a = randn(3, 4).mul(3).to(dtype)
    check(lambda t: t + scalar, a)
    check(lambda t: scalar * t, a)
    check(lambda t: t == scalar, a)


def test_in_place_promotion_is_refused_as_on_the_cpu() -> None:
    for where in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="^result type Float can't be cast to the desired output type Long$"):
            torch.ones(2, dtype=torch.long, device=where).mul_(0.5)


# ---- Factories -----------------------------------------------------------------------------------------------------

FACTORIES: dict[str, Callable[[str], Tensor]] = {
    "zeros": lambda d: torch.zeros(2, 3, device=d),
    "ones": lambda d: torch.ones(2, 3, dtype=torch.int16, device=d),
    "full": lambda d: torch.full((2, 3), 4.5, device=d),
    "full of bool": lambda d: torch.full((2,), True, device=d),
    "eye": lambda d: torch.eye(3, 4, device=d),
    "arange": lambda d: torch.arange(2, 20, 3, device=d),
    "arange of floats": lambda d: torch.arange(0.0, 1.0, 0.1, device=d),
    "linspace": lambda d: torch.linspace(0, 1, 11, device=d),
    "logspace": lambda d: torch.logspace(0, 2, 5, device=d),
    "tensor": lambda d: torch.tensor([[1, 2], [3, 4]], device=d),
    "tensor of a scalar": lambda d: torch.tensor(2.5, device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(2, device=d),
    "tril_indices": lambda d: torch.tril_indices(3, 4, device=d),
    "hann_window": lambda d: torch.hann_window(8, device=d),
    "bartlett_window": lambda d: torch.bartlett_window(8, device=d),
    "complex zeros": lambda d: torch.zeros(2, dtype=torch.cfloat, device=d),
    "rand": lambda d: torch.rand(2, 3, device=d),
    "randn": lambda d: torch.randn(100, device=d),
    "randint": lambda d: torch.randint(0, 10, (5,), device=d),
    "randperm": lambda d: torch.randperm(10, device=d),
    "normal": lambda d: torch.normal(1.0, 2.0, (4,), device=d),
    "asarray": lambda d: torch.asarray([1.0, 2.0], device=d),
    "vander": lambda d: torch.vander(torch.arange(3.0, device=d)),
    "sparse": lambda d: torch.ones(2, 2, device=d).triu().nonzero(),
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES.keys())
def test_a_factory(factory: Callable[[str], Tensor]) -> None:
    torch.manual_seed(5)
    actual = factory(DEVICE)
    torch.manual_seed(5)
    assert_same(actual, factory("cpu"))
    assert actual.device == torch.device(DEVICE_0)


# (torch.normal is not among the functions for which torch.device works as a context.)
@pytest.mark.parametrize("name", [name for name in FACTORIES if name != "normal"])
def test_a_factory_under_a_default_device(name: str) -> None:
    factory: Callable[[Any], Tensor] = FACTORIES[name]
    torch.manual_seed(5)
    with torch.device(DEVICE):
        actual = factory(None)
    torch.manual_seed(5)
    assert_same(actual, factory("cpu"))


@pytest.mark.parametrize(
    "function",
    [
        torch.zeros_like,
        torch.ones_like,
        lambda t: torch.full_like(t, 2),
        lambda t: torch.rand_like(t, dtype=torch.float32),
        lambda t: torch.zeros_like(t, memory_format=torch.contiguous_format),
        lambda t: t.new_zeros(3),
        lambda t: t.new_tensor([1, 2]),
        lambda t: t.new_full((2,), 3),
        lambda t: torch.zeros_like(t, dtype=torch.int8),
    ],
    ids=["zeros", "ones", "full", "rand", "contiguous", "new_zeros", "new_tensor", "new_full", "dtype"],
)
def test_a_factory_takes_place_and_strides_from_a_tensor(function: Callable[[Tensor], Tensor]) -> None:
    check(function, randn(3, 4).t())
    check(function, randn(2, 3, 4, 5).to(memory_format=torch.channels_last))


@pytest.mark.parametrize(
    "function",
    [torch.empty_like, lambda t: t.new_empty(3, 2), lambda t: torch.empty_strided((2, 3), (1, 2), device=t.device)],
)
def test_empty_has_the_cpus_geometry(function: Callable[[Tensor], Tensor]) -> None:
    a = randn(3, 4).t()
    actual, expected = function(a.to(DEVICE)), function(a)
    assert (actual.shape, actual.stride(), actual.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert actual.device == torch.device(DEVICE_0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool, torch.complex64], ids=str)
def test_deterministic_algorithms_fill_uninitialised_memory(dtype: torch.dtype) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        check(lambda t: torch.empty_like(t), torch.zeros(5, dtype=dtype))
        check(lambda t: t.new_empty(2, 3), torch.zeros(1, dtype=dtype))
        check(lambda t: torch.empty_strided((2, 2), (2, 1), dtype=dtype, device=t.device), torch.zeros(1, dtype=dtype))
        check(lambda t: t.resize_(4)[1:], torch.zeros(1, dtype=dtype))
    finally:
        torch.use_deterministic_algorithms(False)


# ---- out= and in-place ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda t: torch.zeros_like(t), lambda t: t.new_zeros(*t.shape[::-1]).t(), lambda t: t.new_empty(0)],
    ids=["right shape", "transposed", "empty"],
)
@pytest.mark.parametrize(
    "function",
    [
        lambda a, b, out: torch.add(a, b, out=out),
        lambda a, b, out: torch.mm(a, b.t(), out=out) if out.numel() == 0 else torch.mul(a, b, out=out),
        lambda a, b, out: torch.maximum(a, b, out=out),
        lambda a, b, out: torch.clamp(a, -0.5, 0.5, out=out),
        lambda a, b, out: torch.cumsum(a, 0, out=out),
    ],
    ids=["add", "mm", "maximum", "clamp", "cumsum"],
)
def test_an_operator_with_out_writes_the_cpus_results_into_it(
    function: Callable[..., Tensor], make: Callable[[Tensor], Tensor]
) -> None:
    def run(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        out = make(a)
        result = function(a, b, out)
        assert result is out
        return result, out

    check(run, randn(3, 4), randn(3, 4, seed=1))


def test_out_of_a_wrong_size_is_resized_with_torchs_warning() -> None:
    out = torch.zeros(2, device=DEVICE)
    with pytest.warns(UserWarning, match="An output with one or more elements was resized since it had shape"):
        torch.add(torch.ones(3, device=DEVICE), 1, out=out)
    assert_same(out, torch.full((3,), 2.0))


def test_out_of_several_tensors() -> None:
    def run(a: Tensor) -> tuple[Tensor, ...]:
        values, indices = a.new_empty(0), torch.empty(0, dtype=torch.long, device=a.device)
        torch.topk(a, 2, out=(values, indices))
        return values, indices

    check(run, randn(3, 5))


@pytest.mark.parametrize("driver", ["gesvd", "gesvdj", "gesvda"])
@pytest.mark.parametrize("out", [False, True], ids=["returned", "out"])
def test_svd_accepts_the_drivers_of_cuda(driver: str, out: bool) -> None:
    matrix = randn(3, 5, 4)
    results = tuple(torch.empty(0, device=DEVICE) for _ in range(3)) if out else None
    returned = torch.linalg.svd(matrix.to(DEVICE), full_matrices=False, driver=driver, out=results)
    assert_same(list(results or returned), list(torch.linalg.svd(matrix, full_matrices=False)))


def test_svd_refuses_another_driver_in_cudas_words_after_all_other_checks() -> None:
    with pytest.raises(RuntimeError, match=r"^torch.linalg.svd: unknown svd driver gesdd in svd_cusolver computation."):
        torch.linalg.svd(torch.eye(2, device=DEVICE), driver="gesdd")
    with pytest.raises(RuntimeError, match="must have at least 2 dimensions"):
        torch.linalg.svd(torch.ones(3, device=DEVICE), driver="gesdd")
    empty = torch.linalg.svd(torch.empty(0, 3, device=DEVICE), driver="gesdd")
    assert_same(list(empty), list(torch.linalg.svd(torch.empty(0, 3))))


@pytest.mark.parametrize("sizes", [(-1,), (-1, 2), (2**62, 2), (2**31, 2**32)])
def test_resize_to_a_size_that_no_tensor_has_changes_nothing(sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="^numel: integer multiplication overflow$"):
        torch.ones(2, 2).resize_(sizes)
    x = torch.ones(2, 2, device=DEVICE)
    with pytest.raises(RuntimeError, match="^numel: integer multiplication overflow$"):
        x.resize_(sizes)
    assert_same(x, torch.ones(2, 2))


def test_out_that_was_resized_before_the_operator_failed_stays_resized() -> None:
    x = torch.arange(6, device=DEVICE).reshape(2, 3)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        torch.cat([x, x], out=x)
    assert x.shape == (4, 3)  # as on the CPU and on CUDA
    assert x.flatten()[:6].tolist() == list(range(6))


def test_out_that_overlaps_its_input_is_refused() -> None:
    a = torch.zeros(5, device=DEVICE)
    with pytest.raises(
        RuntimeError, match="^unsupported operation: some elements of the input tensor and the written-to tensor"
    ):
        torch.add(a[:-1], 1, out=a[1:])


def test_in_place_returns_the_tensor_and_keeps_its_memory() -> None:
    a = torch.ones(3, device=DEVICE)
    pointer = a.data_ptr()
    assert a.add_(1).mul_(3).clamp_(max=5).zero_().fill_(2).sqrt_() is a
    assert a.data_ptr() == pointer


# ---- Indexing, sorting, joining, linear algebra, FFT ---------------------------------------------------------------

OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "index with a mask": (lambda t: t[t > 0], (randn(5, 6),)),
    "index with tensors": (lambda t, i: t[i, :, i], (randn(5, 6, 5), torch.tensor([0, 4, 2]))),
    "setitem with a mask": (lambda t: t.__setitem__(t > 0, -1.0), (randn(5, 6),)),
    "setitem with an index": (lambda t, i: t.__setitem__(i, t[:3] * 2), (randn(5, 6), torch.tensor([4, 0, 1]))),
    "index_put accumulate": (
        lambda t, i, v: t.index_put_((i,), v, accumulate=True), (randn(4), torch.tensor([1, 1, 3]), randn(3, seed=1))
    ),
    "nonzero": (lambda t: t.nonzero(), (torch.eye(3),)),
    "nonzero as tuple": (lambda t: t.nonzero(as_tuple=True), (torch.eye(3),)),
    "unique": (lambda t: t.unique(return_inverse=True, return_counts=True), (torch.tensor([3, 1, 3, 2]),)),
    "sort": (lambda t: t.sort(stable=True, descending=True), (randn(1000).round(decimals=1),)),
    "topk": (lambda t: t.topk(3), (randn(4, 9),)),
    "cat": (lambda *t: torch.cat(t, dim=1), (randn(2, 3), randn(2, 0), randn(2, 4))),
    "cat of dtypes": (lambda a, b: torch.cat([a, b]), (randn(2), torch.arange(3))),
    "stack": (lambda *t: torch.stack(t, dim=1), (randn(2, 3), randn(2, 3, seed=1))),
    "roll": (lambda t: t.roll((1, 2), (0, 1)), (randn(3, 5),)),
    "pad": (lambda t: F.pad(t, (1, 2), mode="reflect"), (randn(2, 3, 6),)),
    "interpolate": (lambda t: F.interpolate(t, scale_factor=1.7, mode="bilinear"), (randn(1, 2, 5, 6),)),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (randn(2, 3, 4), randn(2, 5, 4, seed=1))),
    "matmul of vectors": (torch.matmul, (randn(5), randn(5, seed=1))),
    "matmul broadcast": (torch.matmul, (randn(3, 1, 4, 5), randn(2, 5, 6, seed=1))),
    "addmm": (lambda *t: torch.addmm(*t, beta=0.5, alpha=2), (randn(3, 5), randn(3, 4, seed=1), randn(4, 5, seed=2))),
    "matmul of ints": (torch.matmul, (torch.arange(6).reshape(2, 3), torch.arange(6).reshape(3, 2))),
    "solve": (torch.linalg.solve, (randn(4, 4), randn(4, 2, seed=1))),
    "svd": (lambda t: torch.linalg.svd(t), (randn(4, 3),)),
    "eigh": (lambda t: torch.linalg.eigh(t @ t.T), (randn(4, 4),)),
    "cholesky": (lambda t: torch.linalg.cholesky(t @ t.T + torch.eye(4, device=t.device)), (randn(4, 4),)),
    "det": (torch.linalg.det, (randn(2, 4, 4),)),
    "qr": (torch.linalg.qr, (randn(5, 3),)),
    "rfft": (torch.fft.rfft, (randn(3, 16),)),
    "ifft": (torch.fft.ifft, (torch.view_as_complex(randn(3, 8, 2)),)),
    "irfft2": (torch.fft.irfft2, (torch.view_as_complex(randn(4, 5, 2)),)),
    "stft": (
        lambda t, w: torch.stft(t, 16, window=w, return_complex=True), (randn(200), torch.hann_window(16))
    ),
    "histc": (lambda t: torch.histc(t, 10), (randn(100),)),
    "bincount": (torch.bincount, (torch.tensor([1, 4, 1]),)),
    "cumsum": (lambda t: t.cumsum(1), (randn(3, 1000),)),
    "searchsorted": (torch.searchsorted, (torch.arange(10.0), randn(5).mul(5))),
    "repeat_interleave": (torch.repeat_interleave, (randn(3), torch.tensor([2, 0, 3]))),
    "scatter_reduce": (
        lambda t, i, v: t.scatter_reduce(0, i, v, "amax"), (randn(4), torch.tensor([1, 1, 3]), randn(3, seed=1))
    ),
    "one_hot": (lambda t: F.one_hot(t, 5), (torch.tensor([0, 4, 2]),)),
    "cdist": (torch.cdist, (randn(30, 3), randn(40, 3, seed=1))),
    "complex": (lambda a, b: torch.complex(a, b).conj() * torch.polar(a.abs(), b), (randn(3), randn(3, seed=1))),
    "conj of a product": (lambda t: (t.conj() @ t.mT).resolve_conj(), (torch.view_as_complex(randn(3, 4, 2)),)),
    "allclose": (lambda a: torch.allclose(a, a + 1e-9), (randn(3),)),
    "equal": (lambda a: (torch.equal(a, a.clone()), torch.equal(a, a + 1)), (randn(3),)),
    "nan equal": (lambda a: torch.isclose(a, a, equal_nan=True), (torch.tensor([1.0, float("nan")]),)),
    "bitwise": (lambda a, b: (a & b, a | b, a ^ b, ~a, a << 1), (torch.arange(8), torch.arange(8).flip(0))),
    "integer division": (lambda a, b: (a // b, a % b, torch.remainder(a, b)), (torch.arange(-4, 5), torch.tensor(3))),
}  # fmt: skip


@pytest.mark.parametrize(("function", "arguments"), OTHERS.values(), ids=OTHERS.keys())
def test_an_operator(function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    check(function, *arguments)


# ---- Operators that a backend must supply itself -------------------------------------------------------------------


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
def test_convolution(dimensions: int, transposed: bool, groups: int, bias: bool) -> None:
    function = getattr(F, f"conv{'_transpose' if transposed else ''}{dimensions}d")
    weight = (
        randn(4, 6 // groups, *[3] * dimensions, seed=1) if not transposed else randn(4, 6 // groups, *[3] * dimensions)
    )
    x = randn(2, 6 if not transposed else 4, *[8] * dimensions)
    b = randn(4 if not transposed else 6, seed=2) if bias else None
    check(lambda x, w, b: function(x, w, b, stride=2, padding=1, groups=groups), x, weight, b)


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_convolution_formats_and_dtypes(dtype: torch.dtype, format: torch.memory_format) -> None:
    x = randn(2, 4, 9, 9, dtype=dtype).to(memory_format=format)
    check(lambda x, w: F.conv2d(x, w, padding="same"), x, randn(8, 4, 3, 3, dtype=dtype, seed=1))


def test_convolution_backward_gives_all_three_gradients() -> None:
    def run(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(F.conv2d(x, w, b, padding=1).square().sum(), (x, w, b))

    check(run, *(t.requires_grad_() for t in (randn(2, 3, 8, 8), randn(4, 3, 3, 3, seed=1), randn(4, seed=2))))


MASKS: dict[str, Tensor | None] = {
    "no mask": None,
    "a bool mask": torch.ones(5, 7, dtype=torch.bool).tril(2),
    "a float mask": randn(5, 7, seed=9),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())
def test_attention(mask: Tensor | None, grad: bool) -> None:
    def run(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return (output, *torch.autograd.grad(output.square().sum(), (q, k, v))) if grad else (output,)

    arguments = [randn(2, 4, n, 8, seed=seed).requires_grad_(grad) for seed, n in enumerate((5, 7, 7))]
    on_cpu = run(*arguments, mask)
    on_device = run(*place((*arguments, mask), DEVICE))
    torch.testing.assert_close([t.cpu() for t in on_device], list(on_cpu))


@pytest.mark.parametrize("gqa", [False, True])
def test_causal_attention(gqa: bool) -> None:
    k = randn(2, 2 if gqa else 4, 6, 8, seed=1)
    arguments = (randn(2, 4, 6, 8), k, randn(*k.shape, seed=2))
    expected, actual = (
        F.scaled_dot_product_attention(*place(arguments, where), is_causal=True, enable_gqa=gqa)
        for where in ("cpu", DEVICE)
    )
    torch.testing.assert_close(actual.cpu(), expected)


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("train", [False, True])
def test_dropout_draws_the_cpus_mask(p: float, train: bool) -> None:
    check(lambda t: F.dropout(t, p, train), randn(1000))
    check(lambda t: F.dropout(t, p, train), randn(1000).requires_grad_())
    check(lambda t: F.alpha_dropout(t, p, train), randn(1000))
    check(lambda t: F.dropout2d(t, p, train), randn(4, 5, 6, 7))


@pytest.mark.parametrize("scale", [0.0, 1.25])
def test_the_gradient_of_dropout_is_multiplied_also_where_all_is_dropped(scale: float) -> None:
    grad = torch.tensor([1.0, -1.0, float("inf"), float("nan"), -2.0])
    check(lambda g, mask: torch.native_dropout_backward(g, mask, scale), grad, grad < 2)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad], ids=["no_grad", "grad"])
@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN, torch.nn.LSTMCell, torch.nn.GRUCell])
def test_recurrent(kind: type[torch.nn.Module], mode: Callable[[], Any]) -> None:
    torch.manual_seed(0)
    module = kind(4, 5)
    x = randn(3, 4) if kind.__name__.endswith("Cell") else randn(3, 2, 4)
    with mode():
        expected = module(x)
        actual = module.to(DEVICE)(x.to(DEVICE))
    # The CPU computes some of these modules with fused kernels, which add in another order.
    torch.testing.assert_close(torch.utils._pytree.tree_map(lambda t: t.cpu(), actual), expected)


def operators_in(function: Callable[[], Any]) -> set[str]:
    with torch.profiler.profile() as profile:
        function()
    return {event.key for event in profile.key_averages()}


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.nn.LSTM, {}),
        (torch.nn.LSTM, {"num_layers": 2, "bidirectional": True}),
        (torch.nn.LSTM, {"batch_first": True, "bias": False}),
        (torch.nn.LSTM, {"proj_size": 3}),
        (torch.nn.LSTM, {"num_layers": 2, "dropout": 0.5}),  # draws nothing in evaluation
        (torch.nn.GRU, {}),
        (torch.nn.GRU, {"num_layers": 2, "bidirectional": True}),
    ],
)
def test_recurrent_layers_in_inference_are_one_kernel_with_the_results_of_the_cpu(
    kind: type[torch.nn.Module], options: dict[str, Any], mode: Callable[[], Any]
) -> None:
    torch.manual_seed(0)
    module, x = kind(4, 5, **options).eval(), randn(3, 2, 4)
    with mode(), torch.openreg.execution_mode("inline"):
        expected = module(x)
        on_device, moved = module.to(DEVICE), x.to(DEVICE)
        assert_same(on_device(moved), expected)
        # Composed of operators of the device, the layer would call a cell in each step.
        assert not operators_in(lambda: on_device(moved)) & {
            f"aten::_thnn_fused_{name}_cell" for name in ("lstm", "gru")
        }


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU])
def test_recurrent_layers_are_composed_of_cells_where_one_kernel_would_not_do(kind: type[torch.nn.Module]) -> None:
    module, x = kind(4, 5, num_layers=2, dropout=0.5).to(DEVICE), randn(3, 2, 4).to(DEVICE)
    cell = f"aten::_thnn_fused_{kind.__name__.lower()}_cell"

    def composed(function: Callable[[], Any]) -> bool:
        return cell in operators_in(function)

    def tangent() -> None:
        with torch.autograd.forward_ad.dual_level():
            module.eval()(torch.autograd.forward_ad.make_dual(x, x))

    with torch.openreg.execution_mode("inline"):
        assert composed(lambda: module(x))  # records a gradient
        with torch.no_grad():
            assert composed(lambda: module.train()(x))  # draws
            assert not composed(lambda: module.eval()(x))
            with pytest.raises(
                NotImplementedError, match=f"^Trying to use forward AD with {cell.removeprefix('aten::')} "
            ):
                tangent()
            with torch.autocast(DEVICE, dtype=torch.bfloat16):
                assert composed(lambda: module(x))
            before = torch.get_float32_matmul_precision()
            try:
                torch.set_float32_matmul_precision("high")
                assert composed(lambda: module(x))  # a device model may round the operands
            finally:
                torch.set_float32_matmul_precision(before)
            assert composed(lambda: module.double()(x.double()))
    with torch.no_grad(), torch.openreg.execution_mode("async"):
        assert composed(lambda: module.float()(x))  # queued


def test_a_trace_looks_into_recurrent_layers() -> None:
    module, x = torch.nn.LSTM(4, 5).to(DEVICE), randn(3, 2, 4).to(DEVICE)
    with torch.no_grad():
        with enable_python_dispatcher():  # as torch.compile and torch.export do it
            graph = make_fx(lambda x: module(x)[0], tracing_mode="fake", _allow_non_fake_inputs=True)(x)
        assert "aten.sigmoid.default" in graph.code
        torch.testing.assert_close(graph(x), module(x)[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", [torch.nn.LSTMCell, torch.nn.GRUCell])
def test_a_recurrent_cell_in_half_precision_computes_in_single_as_cudas(
    kind: type[torch.nn.Module], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    module, x = kind(8, 64).to(dtype), randn(64, 8).to(dtype)

    def run(where: str, dtype: torch.dtype) -> list[Tensor]:
        given = x.to(where, dtype, copy=True).requires_grad_()
        (output := leaves(module.to(where, dtype)(given))[0]).sum().backward()
        return [t.detach().cpu().double() for t in (output, given.grad)]

    actual, on_cpu, exact = run(DEVICE, dtype), run("cpu", dtype), run("cpu", torch.float64)
    # The CPU rounds after every operation, so its results are less exact.
    for a, c, e in zip(actual, on_cpu, exact, strict=True):
        assert (a - e).square().mean() < (c - e).square().mean()


# ---- Foreach, fused, custom ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: torch._foreach_add(a, b, alpha=2),
        lambda a, b: torch._foreach_mul_(a, 2.5),
        lambda a, b: torch._foreach_norm(a),
        lambda a, b: torch._foreach_addcdiv_(a, b, [t.abs() + 1 for t in b], 0.5),
        lambda a, b: torch._foreach_lerp(a, b, 0.25),
        lambda a, b: torch._foreach_copy_(a, b),
        lambda a, b: torch._foreach_zero_(a),
    ],
    ids=["add", "mul_", "norm", "addcdiv_", "lerp", "copy_", "zero_"],
)
def test_foreach(function: Callable[..., Any]) -> None:
    a, b = [randn(3, 4), randn(5)], [randn(3, 4, seed=1), randn(5, seed=1)]

    def run(a: list[Tensor], b: list[Tensor]) -> Any:
        return function(a, b), a

    assert_same(run(*place((a, b), DEVICE)), run(*place((a, b), "cpu")))


def test_a_custom_operator_in_python_gets_device_tensors() -> None:
    @torch.library.custom_op("torch_openreg_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        assert x.device.type == torch.device(DEVICE).type or x.device.type == "cpu"
        return x * 2

    twice.register_autograd(lambda ctx, grad: grad * 2)

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        y = twice(x)
        return y, torch.autograd.grad(y.sum(), x)[0]

    check(run, randn(3).requires_grad_())


@pytest.mark.parametrize(
    "make",
    [
        lambda d: torch.zeros(0, 3, device=d) @ torch.zeros(3, 2, device=d),
        lambda d: torch.zeros(2, 0, device=d) @ torch.zeros(0, 2, device=d),
        lambda d: torch.zeros(0, device=d).sum(),
        lambda d: torch.cat([torch.zeros(0, device=d), torch.zeros(0, device=d)]),
        lambda d: F.conv2d(torch.zeros(0, 1, 4, 4, device=d), torch.zeros(2, 1, 3, 3, device=d)),
        lambda d: torch.zeros(3, 0, device=d).softmax(1),
    ],
    ids=["mm of nothing", "mm over nothing", "sum", "cat", "conv2d", "softmax"],
)
def test_inputs_without_elements_give_the_cpus_results(make: Callable[[str], Tensor]) -> None:
    assert_same(make(DEVICE), make("cpu"))


def test_operators_from_several_threads() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def work(seed: int) -> bool:
        a = randn(64, 64, seed=seed)
        b = a.to(DEVICE)
        for _ in range(20):
            a, b = torch.tanh(a @ a.t() / 8), torch.tanh(b @ b.t() / 8)
        assert_same(b, a)
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_a_zero_tensor_that_has_no_memory() -> None:
    # Forward-mode differentiation and some backward formulas use such a tensor for a gradient that is zero everywhere.
    zero = torch._efficientzerotensor((3,), device=DEVICE)
    assert zero._is_zerotensor()
    x = torch.arange(3.0, device=DEVICE)
    assert_same((x + zero, (x * zero).clone(), zero.clone()), (torch.arange(3.0), torch.zeros(3), torch.zeros(3)))
    check(lambda t: torch.autograd.grad(torch.sgn(t).sum(), t)[0].clone(), randn(3).requires_grad_())
    for product in (torch.dot, torch.vdot):
        results = product(x, zero), product(zero, x), product(zero, zero)
        assert all(each._is_zerotensor() for each in results)
        assert_same([each.clone() for each in results], [torch.zeros(())] * 3)
        with pytest.raises(RuntimeError, match="inconsistent tensor size"):
            product(zero, x[:2])


def test_a_coalesced_sparse_tensor_is_checked() -> None:
    """PyTorch's check asks the device for the position of each element (flatten_indices_stub)."""
    values = torch.ones(2, device=DEVICE)
    with torch.sparse.check_sparse_tensor_invariants():
        sorted_, unsorted = torch.tensor([[0, 1], [2, 0]]), torch.tensor([[1, 0], [0, 2]])
        a = torch.sparse_coo_tensor(sorted_.to(DEVICE), values, (2, 3), is_coalesced=True)
        assert_same(a.to_dense(), torch.tensor([[0.0, 0, 1], [1, 0, 0]]))
        with pytest.raises(RuntimeError, match="cannot set is_coalesced to true if indices correspond to uncoalesced"):
            torch.sparse_coo_tensor(unsorted.to(DEVICE), values, (2, 3), is_coalesced=True)


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_out_is_conjugated_where_the_cpu_leaves_it_so(left: bool, adjoint: bool) -> None:
    lu, pivots = torch.linalg.lu_factor(randn(3, 3, dtype=torch.complex64))

    def solve(lu: Tensor, pivots: Tensor, b: Tensor, out: Tensor) -> tuple[Tensor, bool]:
        torch.linalg.lu_solve(lu, pivots, b, left=left, adjoint=adjoint, out=out)
        return out.resolve_conj(), out.is_conj()

    check(solve, lu, pivots, randn(3, 3, dtype=torch.complex64, seed=1), torch.empty(3, 3, dtype=torch.complex64))


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float16])
def test_the_gradient_of_dropout_has_the_cpus_dtype(dtype: torch.dtype) -> None:
    check(torch.ops.aten.native_dropout_backward, torch.ones(4).to(dtype), torch.tensor([True, False, True, True]), 2.0)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_converts_float16_on_the_way_as_on_an_accelerator(name: str) -> None:
    operator, backward = (getattr(torch.ops.aten, f"_{name}{suffix}") for suffix in ("", "_backward_data"))
    x, grad = randn(5, 7, dtype=torch.float16), randn(5, 7, seed=1)
    out = operator(x.to(DEVICE), 1, True)
    expected = operator(x.float(), 1, False)
    assert_same(out, expected)
    assert_same(
        backward(grad.to(DEVICE), out, 1, torch.float16), backward(grad, expected, 1, torch.float32).to(torch.float16)
    )
    with pytest.raises(RuntimeError, match=r"^conversion is supported for Half type only$"):
        operator(randn(2, 3).to(DEVICE), 1, True)


def test_kaiser_window_has_the_cpus_numbers() -> None:
    assert_same(torch.kaiser_window(5, device=DEVICE), torch.kaiser_window(5))
