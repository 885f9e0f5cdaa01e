"""A view on the device shares memory with its base exactly as on the CPU: shape, strides, offset, and writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE, assert_same, leaves
from torch import Tensor

View = Callable[[Tensor], object]

# Views of a 4 x 6 float32 tensor.
VIEWS: dict[str, View] = {
    "index": lambda t: t[1],
    "slice": lambda t: t[1:3, ::2],
    "ellipsis and none": lambda t: t[..., None, 2],
    "select": lambda t: t.select(1, 3),
    "narrow": lambda t: t.narrow(1, 2, 3),
    "view": lambda t: t.view(2, 12),
    "view of a dtype": lambda t: t.view(torch.int32),
    "view of a smaller dtype": lambda t: t.view(torch.int16),
    "view_as": lambda t: t.view_as(torch.empty(24)),
    "reshape": lambda t: t.reshape(8, 3),
    "flatten": lambda t: t.flatten(),
    "unflatten": lambda t: t.unflatten(1, (2, 3)),
    "t": lambda t: t.t(),
    "mT": lambda t: t.mT,
    "transpose": lambda t: t.transpose(0, 1),
    "permute": lambda t: t.view(2, 2, 6).permute(2, 0, 1),
    "movedim": lambda t: t.view(2, 2, 6).movedim(0, 2),
    "unsqueeze": lambda t: t.unsqueeze(1),
    "squeeze": lambda t: t[:1].squeeze(),
    "expand": lambda t: t[:, :1].expand(4, 3),
    "diagonal": lambda t: t.diagonal(1),
    "unfold": lambda t: t.unfold(1, 3, 2),
    "as_strided": lambda t: t.as_strided((3, 2), (2, 5), 1),
    "chunk": lambda t: t.chunk(3, dim=1),
    "split": lambda t: t.split([1, 3]),
    "tensor_split": lambda t: t.tensor_split(4, dim=1),
    "unbind": lambda t: t.unbind(),
    "hsplit": lambda t: t.hsplit(2),
    "detach": lambda t: t.detach(),
    "alias": lambda t: torch.ops.aten.alias(t),
    "view_as_complex": lambda t: torch.view_as_complex(t.view(4, 3, 2)),
    "view_as_real": lambda t: torch.view_as_real(torch.view_as_complex(t.view(4, 3, 2))),
    "imag": lambda t: torch.view_as_complex(t.view(4, 3, 2)).imag,
    "of a view": lambda t: t[1:].t()[::2].unsqueeze(0),
    "empty": lambda t: t[2:2],
}


def pair() -> tuple[Tensor, Tensor]:
    base = torch.arange(24.0).reshape(4, 6).clone()
    return base.to(DEVICE, copy=True), base


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_has_the_cpus_geometry(view: View) -> None:
    on_device, on_cpu = pair()
    actual, expected = view(on_device), view(on_cpu)
    assert_same(actual, expected)
    for a, e in zip(leaves(actual), leaves(expected), strict=True):
        assert (a.stride(), a.storage_offset()) == (e.stride(), e.storage_offset())
        assert a._is_view() == e._is_view()
        assert a.untyped_storage()._cdata == on_device.untyped_storage()._cdata
        assert a.data_ptr() - on_device.data_ptr() == e.data_ptr() - on_cpu.data_ptr() or e.numel() == 0


@pytest.mark.parametrize("name", [name for name in VIEWS if name not in ("expand", "unfold")])  # their elements overlap
def test_a_write_through_a_view_reaches_the_base_and_the_other_way_round(name: str) -> None:
    view = VIEWS[name]
    on_device, on_cpu = pair()
    device_views, cpu_views = leaves(view(on_device)), leaves(view(on_cpu))
    for a, e in zip(device_views, cpu_views, strict=True):
        a.mul_(3)
        e.mul_(3)
    assert_same(on_device, on_cpu)
    on_device.add_(1)
    on_cpu.add_(1)
    assert_same(device_views, cpu_views)


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_keeps_the_memory_when_its_base_is_gone(view: View) -> None:
    on_device, on_cpu = pair()
    actual, expected = view(on_device), view(on_cpu)
    del on_device
    others = [torch.zeros(4, 6, device=DEVICE) for _ in range(8)]
    assert_same(actual, expected)
    del others


def test_a_write_to_a_view_raises_its_bases_version() -> None:
    a = torch.zeros(4, device=DEVICE)
    view = a[1:]
    version = a._version
    view.fill_(1)
    assert a._version == view._version == version + 1


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.t_(),
        lambda t: t.squeeze_(),
        lambda t: t.unsqueeze_(0),
        lambda t: t.transpose_(0, 1),
        lambda t: t.as_strided_((2, 2), (1, 3)),
        lambda t: t.resize_(3, 2),
        lambda t: t.detach_(),
        lambda t: t.swapdims_(0, 1),
    ],
    ids=["t_", "squeeze_", "unsqueeze_", "transpose_", "as_strided_", "resize_", "detach_", "swapdims_"],
)
def test_an_in_place_change_of_shape(change: Callable[[Tensor], Tensor]) -> None:
    on_device, on_cpu = pair()
    data, storage = on_device.data_ptr(), on_device.untyped_storage()._cdata
    assert change(on_device) is on_device
    assert_same(on_device, change(on_cpu))
    assert (on_device.data_ptr(), on_device.untyped_storage()._cdata) == (data, storage)


def test_resize_to_more_keeps_what_there_was() -> None:
    on_device, on_cpu = pair()
    assert_same(on_device.resize_(40)[:24], on_cpu.resize_(40)[:24])
    assert on_device.untyped_storage().nbytes() == 160


def test_slices_reach_across_the_storage_and_stay_in_it() -> None:
    a = torch.zeros(10, device=DEVICE)
    a[2:5] = 1
    a[5:8] += torch.arange(3.0, device=DEVICE)
    a[-1] = 9
    assert a.tolist() == [0, 0, 1, 1, 1, 0, 1, 2, 0, 9]


def test_advanced_indexing_copies() -> None:
    on_device, on_cpu = pair()
    index = torch.tensor([3, 0])
    actual = on_device[index.to(DEVICE)]
    assert_same(actual, on_cpu[index])
    actual.zero_()
    assert_same(on_device, on_cpu)


def test_reshape_of_what_has_no_view_copies() -> None:
    on_device, on_cpu = pair()
    actual = on_device.t().reshape(-1)
    assert_same(actual, on_cpu.t().reshape(-1))
    assert actual.untyped_storage()._cdata != on_device.untyped_storage()._cdata


def test_set_data_and_swap() -> None:
    a = torch.zeros(3, device=DEVICE)
    a.data = torch.ones(2, device=DEVICE)
    assert_same(a, torch.ones(2))
    b = torch.full((4,), 2.0, device=DEVICE)
    torch.utils.swap_tensors(a, b)
    assert_same((a, b), (torch.full((4,), 2.0), torch.ones(2)))


def test_data_of_a_cpu_tensor_may_become_one_of_the_device() -> None:
    # Module.to does this after torch.__future__.set_overwrite_module_params_on_conversion(False).
    parameter = torch.nn.Parameter(torch.arange(3.0))
    parameter.data = parameter.data.to(DEVICE)
    assert_same(parameter, torch.nn.Parameter(torch.arange(3.0)))
