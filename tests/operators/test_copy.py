"""copy_ and what is built on it (`to`, `cpu`, `clone`, `item`, printing): all directions, dtypes and layouts."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same, place

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")

PLACES = ["cpu", DEVICE_0, pytest.param(DEVICE_1, marks=TWO_DEVICES)]
DTYPES = [
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.int8,
    torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool,
]  # fmt: skip


def values(dtype: torch.dtype, *shape: int) -> torch.Tensor:
    count = torch.Size(shape).numel()
    return (torch.arange(count) % 7).reshape(shape).to(dtype)


def filled(like: torch.Tensor, where: str) -> torch.Tensor:
    """A destination on the device ``where``, full of ones. A copy must overwrite them."""
    return torch.full_like(like, 1).to(where)


# Layouts of a 4 x 6 tensor: the shape of the tensor that owns the memory, and the function that makes the view.
LAYOUTS = {
    "contiguous": ((4, 6), lambda t: t),
    "transposed": ((6, 4), lambda t: t.t()),
    "strided": ((4, 12), lambda t: t[:, ::2]),
    "offset": ((5, 7), lambda t: t[1:, 1:]),
    "expanded": ((1, 6), lambda t: t.expand(4, 6)),
    "unfolded": ((1, 9), lambda t: t[0].unfold(0, 6, 1)),
}
# A destination may not overlap itself.
DESTINATIONS = ["contiguous", "transposed", "strided", "offset"]


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("source", PLACES)
@pytest.mark.parametrize("non_blocking", [False, True])
def test_copy_in_every_direction(source: str, to: str, non_blocking: bool) -> None:
    expected = values(torch.float32, 4, 6)
    destination = filled(expected, to)
    result = destination.copy_(expected.to(source), non_blocking=non_blocking)
    assert result is destination
    torch.accelerator.synchronize()
    assert_same(destination, expected, device=to)
    assert destination.device == torch.device(to)


@pytest.mark.parametrize(("source", "to"), [("cpu", DEVICE_0), (DEVICE_0, "cpu"), (DEVICE_0, DEVICE_0)])
@pytest.mark.parametrize(("from_layout", "to_layout"), list(itertools.product(LAYOUTS, DESTINATIONS)))
def test_copy_between_layouts(source: str, to: str, from_layout: str, to_layout: str) -> None:
    # The whole destination is compared, because a copy must not change the elements beside the view.
    from_shape, from_view = LAYOUTS[from_layout]
    to_shape, to_view = LAYOUTS[to_layout]
    original = values(torch.float32, *from_shape)
    expected = torch.full(to_shape, -1.0)
    actual = expected.to(to, copy=True)
    to_view(expected).copy_(from_view(original))
    to_view(actual).copy_(from_view(original.to(source)))
    assert_same(actual, expected, device=to)


@pytest.mark.parametrize(("source", "to"), [("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE)])
@pytest.mark.parametrize("to_dtype", DTYPES, ids=str)
@pytest.mark.parametrize("from_dtype", DTYPES, ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_copy_between_dtypes(source: str, to: str, from_dtype: torch.dtype, to_dtype: torch.dtype) -> None:
    original = values(from_dtype, 3, 5)
    expected = torch.zeros(3, 5, dtype=to_dtype).copy_(original)
    assert_same(torch.zeros(3, 5, dtype=to_dtype, device=to).copy_(original.to(source)), expected, device=to)
    assert_same(original.to(source).to(device=to, dtype=to_dtype), expected, device=to)


@pytest.mark.parametrize(("source", "to"), [("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE)])
@pytest.mark.parametrize(
    "lazy", [torch.conj, torch._neg_view, lambda t: t.conj().imag], ids=["conj", "neg", "imag of conj"]
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_copy_resolves_conj_and_neg_bits(source: str, to: str, lazy, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    original = torch.randn(3, 4, dtype=dtype)
    expected = lazy(original).resolve_conj().resolve_neg()
    view = lazy(original.to(source))
    assert_same(torch.zeros_like(expected, device=to).copy_(view), expected, device=to)
    # Here the destination is a lazy view. Its values after the copy must be those of the source.
    destination = lazy(torch.zeros(3, 4, dtype=dtype, device=to))
    destination.copy_(expected.to(source))
    assert_same(destination.resolve_conj().resolve_neg(), expected, device=to)


def test_copy_broadcasts_its_source() -> None:
    row, expected = torch.arange(3.0), torch.arange(3.0).expand(2, 3)
    assert_same(torch.zeros(2, 3, device=DEVICE).copy_(row), expected.contiguous())
    assert_same(torch.zeros(2, 3, device=DEVICE).copy_(row.to(DEVICE)), expected.contiguous())
    assert_same(torch.zeros(2, 3).copy_(row.to(DEVICE)), expected.contiguous(), device="cpu")


def test_copying_a_tensor_to_itself_changes_nothing() -> None:
    a = torch.arange(5.0, device=DEVICE)
    assert_same(a.copy_(a), torch.arange(5.0))


def test_a_small_copy_within_the_device_refuses_what_overlaps_in_part_and_separates_what_is_shared() -> None:
    x = torch.arange(6.0, device=DEVICE)
    with pytest.raises(
        RuntimeError, match="^unsupported operation: some elements of the input tensor and the written-to"
    ):
        x[1:].copy_(x[:-1])
    x[:3].copy_(x[3:])
    assert x.tolist() == [3, 4, 5, 3, 4, 5]
    shared = torch._lazy_clone(x)
    shared.copy_(torch.zeros(6, device=DEVICE))
    assert (shared.tolist(), x.tolist()) == ([0] * 6, [3, 4, 5, 3, 4, 5])
    x.copy_(torch._lazy_clone(shared))
    assert x.tolist() == [0] * 6


def test_copy_of_a_large_tensor_in_both_directions() -> None:
    torch.manual_seed(0)
    a = torch.randn(3_000_001)
    b = a.to(DEVICE)
    assert_same(b, a)
    assert_same(b.t().clone().cpu(), a, device="cpu")


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_copy_of_nothing(shape: tuple[int, ...]) -> None:
    assert_same(torch.empty(shape).to(DEVICE), torch.empty(shape))
    assert_same(torch.empty(shape, device=DEVICE).cpu(), torch.empty(shape), device="cpu")


@pytest.mark.parametrize(("source", "to"), [("cpu", DEVICE), (DEVICE, "cpu"), (DEVICE, DEVICE)])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_to_preserves_strides_as_the_cpu_does(source: str, to: str, layout: str) -> None:
    shape, view = LAYOUTS[layout]
    a = view(values(torch.float32, *shape))
    assert_same(place(a, source).to(to, copy=True), a.clone(), device=to)


@pytest.mark.parametrize("format", [torch.channels_last, torch.contiguous_format, torch.preserve_format], ids=str)
def test_to_obeys_the_memory_format(format: torch.memory_format) -> None:
    a = values(torch.float32, 2, 3, 4, 5)
    assert_same(a.to(DEVICE, memory_format=format), a.to("cpu", copy=True, memory_format=format))
    assert_same(a.to(DEVICE).clone(memory_format=format), a.clone(memory_format=format))


def test_to_the_device_it_is_on_returns_itself() -> None:
    a = torch.ones(2, device=DEVICE)
    assert a.to(DEVICE) is a
    assert a.to(DEVICE_0) is a
    assert a.to(torch.device(DEVICE)) is a
    assert a.to(DEVICE, copy=True) is not a


def test_the_source_may_change_as_soon_as_a_copy_from_pageable_memory_returns() -> None:
    for _ in range(20):
        source = torch.full((1 << 16,), 3.0)
        on_device = source.to(DEVICE, non_blocking=True)
        source.fill_(4.0)
        assert_same(on_device, torch.full((1 << 16,), 3.0))


def test_a_copy_through_pinned_memory() -> None:
    pinned = torch.arange(1000.0).pin_memory()
    assert pinned.is_pinned()
    on_device = pinned.to(DEVICE, non_blocking=True)
    back = torch.empty(1000).pin_memory()
    back.copy_(on_device, non_blocking=True)
    torch.accelerator.synchronize()
    assert_same(back, torch.arange(1000.0), device="cpu")


@TWO_DEVICES
def test_a_peer_copy_converts_and_keeps_both_devices_current_states() -> None:
    a = values(torch.int32, 4, 6).to(DEVICE_0)
    before = torch.accelerator.current_device_index()
    b = torch.zeros(6, 4, device=DEVICE_1, dtype=torch.float64).t().copy_(a)
    assert_same(b, values(torch.float64, 4, 6).t().contiguous().t())
    assert torch.accelerator.current_device_index() == before


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_item_and_tolist(dtype: torch.dtype) -> None:
    a = values(dtype, 3)
    assert a.to(DEVICE).tolist() == a.tolist()
    assert a[2].to(DEVICE).item() == a[2].item()
    assert type(a[2].to(DEVICE).item()) is type(a[2].item())


def test_python_conversions() -> None:
    a = torch.tensor(3.5, device=DEVICE)
    assert (float(a), int(a), bool(a), complex(a)) == (3.5, 3, True, 3.5 + 0j)
    assert list(range(5))[torch.tensor(2, device=DEVICE)] == 2


def test_printing_shows_the_values_and_the_device() -> None:
    assert repr(torch.tensor([1.0, 2.5], device=DEVICE)) == f"tensor([1.0000, 2.5000], device='{DEVICE_0}')"
    assert (
        repr(torch.ones(2, device=DEVICE, requires_grad=True))
        == f"tensor([1., 1.], device='{DEVICE_0}', requires_grad=True)"
    )
    assert repr(torch.empty(0, device=DEVICE)) == f"tensor([], device='{DEVICE_0}')"
    assert f"{torch.tensor(1.5, device=DEVICE):.2f}" == "1.50"
    large = torch.arange(2000.0)
    assert str(large.to(DEVICE)) == str(large)[:-1] + f", device='{DEVICE_0}')"


def test_deepcopy_keeps_the_device_and_shares_nothing() -> None:
    a = torch.arange(4.0, device=DEVICE)[1:]
    b = copy.deepcopy(a)
    a.zero_()
    assert_same(b, torch.arange(1.0, 4.0))


def test_numpy_through_the_cpu() -> None:
    np = pytest.importorskip("numpy")
    array = np.arange(6.0).reshape(2, 3)
    a = torch.from_numpy(array).to(DEVICE)
    assert_same(a, torch.from_numpy(array))
    assert (a.cpu().numpy() == array).all()
    assert_same(torch.tensor(array, device=DEVICE), torch.from_numpy(array))
    assert_same(torch.as_tensor(array, device=DEVICE), torch.from_numpy(array))
