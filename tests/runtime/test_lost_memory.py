"""A storage whose memory was taken away with ``resize_(0)``, as FSDP does with parameters that it does not need."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from comparison import DEVICE, DEVICE_1, NAME, assert_same
from torch import Tensor


def without_memory(dtype: torch.dtype = torch.float32) -> Tensor:
    x = torch.ones(16, dtype=dtype, device=DEVICE)
    x.untyped_storage().resize_(0)
    return x


def ones(*size: int) -> Tensor:
    return torch.ones(*size, device=DEVICE)


USES: dict[str, Callable[[Tensor], object]] = {
    "structured": lambda x: x + 1,
    "structured, other operand": lambda x: ones(16) * x,
    "structured, in place": lambda x: x.exp_(),
    "structured, out=": lambda x: torch.add(ones(16), 1, out=x),
    "shared with the CPU": lambda x: x.relu_(),
    "fill": lambda x: x.fill_(1),
    "memset": lambda x: x.zero_(),
    "stub": lambda x: x.abs(),
    "unboxed": lambda x: x.sum(),
    "unboxed, list": lambda x: torch.cat([ones(1), x]),
    "unboxed, in place": lambda x: x.uniform_(),
    "unboxed, out=": lambda x: torch.mm(ones(4, 4), ones(4, 4), out=x.view(4, 4)),
    "boxed": lambda x: x.logcumsumexp(0),
    "boxed, out=": lambda x: torch.sin(ones(16), out=x),
    "of lists": lambda x: torch._foreach_add_([ones(2), x], 1),
    "promoted": lambda x: x + ones(16).double(),
    "convolution": lambda x: torch.conv2d(ones(1, 1, 8, 8), x.view(1, 1, 4, 4)),
    "to the host": lambda x: x.cpu(),
    "to the host, pinned": lambda x: torch.empty(16, pin_memory=True).copy_(x, non_blocking=True),
    "from the host": lambda x: x.copy_(torch.ones(16)),
    "from the host, one number": lambda x: x.copy_(torch.ones(())),
    "to another device": lambda x: x.to(DEVICE_1),
    "from another device": lambda x: x.copy_(torch.ones(16, device=DEVICE_1)),
    "copy": lambda x: x.clone(),
    "copy of another dtype": lambda x: x.to(torch.float64),
    "index": lambda x: x[ones(1).long()],
    "print": lambda x: repr(x),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_using_a_tensor_without_memory_raises_and_the_device_stays_usable(use: Callable[[Tensor], object]) -> None:
    x = without_memory()
    sentence = (
        rf"^{NAME} error: an illegal memory access was encountered \(orErrorIllegalAddress from "
        r"(aten::\w+(\.\w+)?|an elementwise kernel): "
        r"the storage of an operand with 16 elements was resized to 0 bytes\)$"
    )
    with pytest.raises(RuntimeError, match=sentence):
        use(x)
    torch.accelerator.synchronize()
    x.untyped_storage().resize_(16 * 4)
    assert_same(x.fill_(3).sum(), torch.tensor(48.0))


def test_the_error_names_the_operator_and_no_earlier_failure() -> None:
    with pytest.raises(RuntimeError, match="out of range"):
        torch.ones(1, device=f"{DEVICE}:99")
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device=DEVICE)
    with pytest.raises(
        RuntimeError, match=re.escape("an illegal memory access was encountered (orErrorIllegalAddress from aten::sum:")
    ):
        without_memory().sum()


def test_item_of_a_tensor_without_memory_raises() -> None:
    x = ones(1)
    x.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="from aten::_local_scalar_dense: the storage of an operand with 1 elements"):
        x.item()


def test_the_components_of_other_layouts_are_checked_too() -> None:
    q = torch.quantize_per_tensor(ones(4), 0.1, 0, torch.qint8)
    q.untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match="from aten::dequantize.self: the storage of an operand with 4 elements"):
        q.dequantize()
    s = ones(4).to_sparse()
    s._values().untyped_storage().resize_(0)
    with pytest.raises(RuntimeError, match=r"from aten::\w+(\.\w+)?: the storage of an operand with 4 elements"):
        s + s


def test_what_needs_no_memory_works() -> None:
    x = without_memory()
    assert torch.empty_like(x).shape == x.detach().shape == (16,)
    assert x.requires_grad_().requires_grad
    assert torch.ops.aten.sym_size.int(x, 0) == 16


def test_a_tensor_without_elements_never_had_memory() -> None:
    empty = ones(0)
    assert_same(
        [empty + 1, empty.sum(), empty.clone(), empty.cpu().to(DEVICE)],
        [ones(0).cpu(), torch.tensor(0.0), *[torch.ones(0)] * 2],
    )
    empty.untyped_storage().resize_(0)
    assert_same(torch.cat([empty, ones(2)]), torch.ones(2))


def test_the_value_of_no_element_is_refused_in_pytorchs_words() -> None:
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="^_local_scalar_dense: Empty tensor not supported$"):
            torch.ops.aten._local_scalar_dense(torch.ones(0, device=device))


def test_zeros_without_memory_can_be_copied_but_not_written() -> None:
    zeros = torch._efficientzerotensor(3, device=DEVICE)
    assert_same(ones(3).copy_(zeros), torch.zeros(3))
    assert_same(torch.ones(3).copy_(zeros), torch.zeros(3), device="cpu")
    with pytest.raises(
        RuntimeError, match="^ZeroTensors are immutable. Please materialize the tensor using `.clone\\(\\)`"
    ):
        zeros.copy_(ones(3))
