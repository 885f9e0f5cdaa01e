"""The device's own description of a tensor's memory (c10::BackendMeta): which tensors have it, and how it is saved."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE, DEVICE_0, DEVICE_1, leaves
from test_views import VIEWS, View
from torch import Tensor
from torch._utils import get_tensor_metadata, set_tensor_metadata

pytestmark = pytest.mark.only_on("openreg", reason="CUDA tensors have no description of their memory")

FLAGS = {"version_number": True, "format_number": False}


def described() -> Tensor:
    tensor = torch.arange(24.0, device=DEVICE).reshape(4, 6)
    set_tensor_metadata(tensor, FLAGS)
    return tensor


def flags(tensor: Tensor) -> dict[str, bool]:
    return {name: flag for name, flag in get_tensor_metadata(tensor).items() if name not in ("conj", "neg")}


def test_a_new_tensor_has_no_backend_meta() -> None:
    assert get_tensor_metadata(torch.ones(2, device=DEVICE)) == {}


def test_flags_are_kept_as_given_and_can_be_changed_one_by_one() -> None:
    tensor = torch.ones(2, device=DEVICE)
    set_tensor_metadata(tensor, {"format_number": True})
    assert get_tensor_metadata(tensor) == {"format_number": True}
    set_tensor_metadata(tensor, {"version_number": True, "format_number": False})
    assert get_tensor_metadata(tensor) == {"version_number": True, "format_number": False}


def test_an_unknown_flag_is_refused() -> None:
    tensor = described()
    message = "^Expected the metadata of an openreg tensor to be version_number or format_number, but got color.$"
    with pytest.raises(RuntimeError, match=message):
        set_tensor_metadata(tensor, {"color": True})
    assert get_tensor_metadata(tensor) == FLAGS


def test_a_cpu_tensor_ignores_backend_meta() -> None:
    tensor = torch.ones(2)
    set_tensor_metadata(tensor, FLAGS)
    assert get_tensor_metadata(tensor) == {}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_a_view_has_the_backend_meta_of_its_base(view: View) -> None:
    base = described()
    assert all(flags(part) == FLAGS for part in leaves(view(base)))
    assert all(flags(part) == {} for part in leaves(view(torch.arange(24.0, device=DEVICE).reshape(4, 6))))


SAME_MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "data": lambda t: t.data,
    "parameter": lambda t: torch.nn.Parameter(t),
    "conj": lambda t: torch.view_as_complex(t.view(4, 3, 2)).conj(),
    "neg": lambda t: torch._neg_view(t),
    "to the same device": lambda t: t.to(DEVICE),
    "contiguous": lambda t: t.contiguous(),
    "in-place": lambda t: t.mul_(2),
    "set_ to a tensor": lambda t: torch.empty(0, device=DEVICE).set_(t),
    "inference mode": torch.inference_mode()(lambda t: t[1]),
    "subclass": lambda t: t.as_subclass(torch.nn.Buffer),
}


@pytest.mark.parametrize("get", SAME_MEMORY.values(), ids=SAME_MEMORY.keys())
def test_the_same_memory_has_the_same_description(get: Callable[[Tensor], Tensor]) -> None:
    assert flags(get(described())) == FLAGS


def test_a_tensor_that_takes_over_anothers_memory_takes_over_its_description() -> None:
    a, b = torch.ones(2, device=DEVICE), described()
    a.data = b
    assert flags(a) == FLAGS
    b.set_(torch.ones(2, device=DEVICE))
    assert (flags(a), flags(b)) == (FLAGS, {})


def test_views_share_the_description_and_not_its_changes() -> None:
    base = described()
    view = base[1:]
    set_tensor_metadata(view, {"format_number": True})
    assert (flags(base), flags(view)) == (FLAGS, {"version_number": True, "format_number": True})


OTHER_MEMORY: dict[str, Callable[[Tensor], Tensor]] = {
    "clone": lambda t: t.clone(),
    "sum": lambda t: t + t,
    "another dtype": lambda t: t.double(),
    "cpu": lambda t: t.cpu(),
    "like": lambda t: torch.empty_like(t),
    "contiguous copy": lambda t: t.t().contiguous(),
    "view_copy": lambda t: torch.view_copy(t, (24,)),
}


@pytest.mark.parametrize("get", OTHER_MEMORY.values(), ids=OTHER_MEMORY.keys())
def test_the_result_of_an_operator_has_no_backend_meta(get: Callable[[Tensor], Tensor]) -> None:
    assert get_tensor_metadata(get(described())) == {}


def _saved(tensor: Tensor, **options: object) -> Tensor:
    buffer = io.BytesIO()
    torch.save(tensor, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)  # type: ignore[arg-type]


SAME_BYTES: dict[str, Callable[[Tensor], Tensor]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": lambda t: pickle.loads(pickle.dumps(t)),
    "save": lambda t: _saved(t, weights_only=True),
    "save, any object": lambda t: _saved(t, weights_only=False),
    "save a view": lambda t: _saved(t[1:].t()),
}


@pytest.mark.parametrize("duplicate", SAME_BYTES.values(), ids=SAME_BYTES.keys())
def test_a_copy_of_the_bytes_keeps_the_backend_meta(duplicate: Callable[[Tensor], Tensor]) -> None:
    assert get_tensor_metadata(duplicate(described())) == FLAGS


def test_a_deep_copy_resolves_conj_and_keeps_the_rest() -> None:
    tensor = described().view(4, 3, 2)
    result = copy.deepcopy(torch.view_as_complex(tensor).conj())
    assert get_tensor_metadata(result) == FLAGS
    assert torch.equal(result.cpu(), torch.view_as_complex(tensor.cpu()).conj())


@pytest.mark.parametrize(("location", "expected"), [(DEVICE_0, FLAGS), (DEVICE_1, FLAGS), ("cpu", {}), ("meta", {})])
def test_backend_meta_is_loaded_on_the_device_and_dropped_elsewhere(location: str, expected: dict[str, bool]) -> None:
    if location == DEVICE_1 and torch.get_device_module(DEVICE).device_count() < 2:
        pytest.skip("needs two devices")
    assert get_tensor_metadata(_saved(described(), map_location=location)) == expected
