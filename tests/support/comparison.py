"""Names the device under test, and compares results of the device with results of the CPU.

The device's name comes from ``pytest --device`` (default ``openreg``), so that the tests of semantics run on a real
accelerator too: ``pytest --device cuda tests/operators/test_copy.py``.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = os.environ.get("TEST_DEVICE", "openreg")
# Whether the device under test is this package's device, under one of its two names, and not a GPU.
OURS = DEVICE == "openreg" or hasattr(torch._C, "_openreg")
DEVICE_0 = f"{DEVICE}:0"
DEVICE_1 = f"{DEVICE}:1"

# The device's name in error messages: NAME as in "OpenReg out of memory", KIND as in "addcmul on openreg tensors".
NAME = {"openreg": "OpenReg", "cuda": "CUDA"}.get(DEVICE, DEVICE)
KIND = "CUDA" if DEVICE == "cuda" else DEVICE
MODULE_NAME = "torch.openreg" if DEVICE == "openreg" else "torch_openreg.openreg"

# The first line of a program that runs in a process of its own. It defines the names that tests import.
PRELUDE = (
    "import torch; from torch_openreg import openreg; "
    f"DEVICE, DEVICE_0, DEVICE_1 = {DEVICE!r}, {DEVICE_0!r}, {DEVICE_1!r}\n"
)


def out_of_range(index: int, count: int) -> str:
    """A pattern for the error message about ``index``, which none of ``count`` devices has."""
    # CUDA's message begins with the text of cudaErrorInvalidDevice (c10/cuda/CUDAMiscFunctions.cpp).
    about = {
        "openreg": r"The device index is out of range\. ",
        "cuda": r"CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs\?\n",
    }[DEVICE]
    return rf"{about}It must be in \[0, {count}\), but got {index}\."


def place(tree: Any, device: str) -> Any:
    """Copies every tensor of ``tree`` to ``device`` with its strides, offset, conj/neg bits and ``requires_grad``.

    Tensors that share a storage share one afterwards. A device (``torch.device`` or the string ``"cpu"``) and a
    ``torch.Generator`` in the tree become those of ``device``.
    """
    storages: dict[tuple[int, torch.dtype], torch.Tensor] = {}

    def move(leaf: Any) -> Any:
        if isinstance(leaf, PackedSequence):
            return leaf.to(device)
        if isinstance(leaf, torch.device) or (isinstance(leaf, str) and leaf == "cpu"):
            return torch.device(device)
        if isinstance(leaf, torch.Generator):
            return torch.Generator(device).manual_seed(leaf.initial_seed())
        if not isinstance(leaf, torch.Tensor):
            return leaf
        source = leaf.detach()
        if source.layout is not torch.strided or source.is_quantized or source.is_nested:
            return source.to(device, copy=True).requires_grad_(leaf.requires_grad)
        storage = source.untyped_storage()
        key = (storage._cdata, source.dtype)
        if key not in storages:
            flat = source.new_empty(0).set_(storage, 0, (storage.nbytes() // source.itemsize,))
            storages[key] = flat.to(device, copy=True)
        moved = storages[key].as_strided(source.size(), source.stride(), source.storage_offset())
        if source.is_conj():
            moved = moved.conj()
        if source.is_neg():
            moved = torch._neg_view(moved)
        return moved.detach().requires_grad_(leaf.requires_grad)

    return tree_map(move, tree)


def leaves(tree: Any) -> list[Any]:
    """The leaves of nested lists, tuples and dicts, in order."""
    return tree_flatten(tree)[0]


def _to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_nested and tensor.layout is torch.strided:
        tensor = tensor.contiguous()  # PyTorch copies only contiguous nested tensors
    tensor = tensor.detach()
    if tensor.dtype is torch.complex32 and tensor.is_conj() and tensor.is_neg():  # no kernel copies such a tensor
        return -torch._neg_view(tensor).cpu().resolve_conj().to(torch.complex64)
    return tensor.cpu().resolve_conj().resolve_neg()


def _dense(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The strided tensors that hold what ``tensor`` holds."""
    if tensor.layout is torch.sparse_coo:
        tensor = tensor.coalesce()
        return [tensor.indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    if tensor.layout is torch.jagged:
        return [tensor.values(), tensor.offsets()]
    if tensor.is_nested:
        return [torch.tensor([tuple(component.shape) for component in tensor.unbind()]), *tensor.unbind()]
    return [tensor.int_repr() if tensor.is_quantized else tensor]


# A dtype that PyTorch cannot compare -> a dtype that holds all its values.
_WIDER = {torch.complex32: torch.complex64} | {
    dtype: torch.float32
    for dtype in (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz)
}


def comparable(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Strided tensors on the CPU that hold what `tensor` holds, in dtypes that PyTorch can compare."""
    return [t.to(_WIDER.get(t.dtype, t.dtype)) for t in _dense(_to_cpu(tensor))]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def identical(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """True if two comparable tensors of one shape and dtype hold the same values, bit for bit: 0 is not -0, but one NaN
    is as good as another."""
    if torch.equal(bits(actual), bits(expected)):
        return True
    if actual.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    if not actual.is_floating_point():
        return False
    same = (actual == expected) & (torch.signbit(actual) == torch.signbit(expected))
    return bool((same | ((actual != actual) & (expected != expected))).all())


def significant_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """The strides that decide where an element lies: those of dimensions with more than one element."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def metadata_difference(
    actual: torch.Tensor, expected: torch.Tensor, device: str, *, strides: bool = True
) -> str | None:
    """Returns a sentence about the first property in which a result on ``device`` differs from the CPU's, or None."""
    if actual.device.type != torch.device(device).type:
        return f"the result is on {actual.device}"
    for name, get in (
        ("dtype", lambda t: t.dtype),
        ("layout", lambda t: t.layout),
        # The sizes of a nested tensor are compared later, with its values: _dense() returns them.
        ("shape", lambda t: t.dim() if t.is_nested else tuple(t.shape)),
        ("requires_grad", lambda t: t.requires_grad),
        ("is_conj", lambda t: t.is_conj()),
        ("is_neg", lambda t: t.is_neg()),
    ):
        if get(actual) != get(expected):
            return f"{name} is {get(actual)}, the CPU's {get(expected)}"
    if (
        strides
        and actual.layout is torch.strided
        and not actual.is_nested
        and significant_strides(actual) != significant_strides(expected)
    ):
        return f"strides of shape {tuple(actual.shape)} are {actual.stride()}, the CPU's {expected.stride()}"
    return None


def assert_same(actual: Any, expected: Any, *, device: str = DEVICE) -> None:
    """Asserts that a result is on ``device`` and has the CPU's dtype, layout, shape, strides and values.

    Values are compared bit for bit, but any NaN equals any other. Takes tensors and nested containers of tensors and
    plain values. Synchronises, since it copies to the CPU.
    """
    actual_leaves, actual_spec = tree_flatten(actual)
    expected_leaves, expected_spec = tree_flatten(expected)
    assert actual_spec == expected_spec, f"the result is {actual_spec}, the CPU's {expected_spec}"
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            assert a == e or (a != a and e != e), f"{a!r} is not the CPU's {e!r}"
            continue
        difference = metadata_difference(a, e, device)
        assert difference is None, difference
        for x, y in zip(comparable(a), comparable(e), strict=True):
            if not identical(x, y):
                torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True)
                raise AssertionError(f"{x} is not {y}")
