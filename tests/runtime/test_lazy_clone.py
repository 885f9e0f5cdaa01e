"""``torch._lazy_clone``: two tensors share memory until one of them is written. Reads do not end the sharing."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from comparison import DEVICE, DEVICE_1, assert_same, place
from sample_inputs import sample_inputs
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_leaves, tree_map

from torch_openreg import openreg

OPERATORS = [op for op in op_db if torch.float32 in op.supported_dtypes("cpu")]
# tensor_split refuses indices on the device, as on CUDA. The jiterator operators exist for CUDA only.
REFUSED = {"tensor_split"} | {op.name for op in op_db if op.name.startswith("jiterator")}


def strided(leaf: Any) -> bool:
    return isinstance(leaf, Tensor) and leaf.layout is torch.strided


def share(op: OpInfo, sample: Any, device: str) -> tuple[list[bool], bool]:
    """Calls ``op`` with lazy clones. Returns whether each one still shares, and whether the originals are unchanged."""
    originals = place([sample.input, list(sample.args), sample.kwargs], device)
    before = tree_map(lambda leaf: leaf.detach().cpu() if strided(leaf) else leaf, originals)
    shared = tree_map(lambda leaf: torch._lazy_clone(leaf) if strided(leaf) else leaf, originals)
    torch.default_generator.manual_seed(0)
    openreg.manual_seed(0)
    op(shared[0], *shared[1], **shared[2])
    unchanged = all(
        torch.equal(torch.nan_to_num(a.detach().cpu()), torch.nan_to_num(b))
        for a, b in zip(tree_leaves(originals), tree_leaves(before), strict=True)
        if strided(a)
    )
    return [torch._C._is_cow_tensor(leaf) for leaf in tree_leaves(shared) if strided(leaf)], unchanged


@pytest.mark.slow
def test_every_operator_keeps_and_ends_sharing_as_the_cpu_does() -> None:
    wrong, shared = [], 0
    for op in OPERATORS:
        if op.name in REFUSED:
            continue
        for sample in itertools.islice(sample_inputs(op, torch.float32), 2):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected, _ = share(op, sample, "cpu")
                actual, unchanged = share(op, sample, DEVICE)
            if actual != expected or not unchanged:
                wrong.append(f"{op.full_name}: {actual}, on the CPU {expected}; unchanged: {unchanged}")
            shared += sum(expected)
    assert not wrong, "\n".join(wrong)
    assert shared > 1500


WRITES: dict[str, Callable[[Tensor], object]] = {
    "structured": lambda x: x.add_(1),
    "stub": lambda x: x.relu_().neg_(),
    "memset": lambda x: x.zero_(),
    "unboxed": lambda x: x.uniform_(5, 6),
    "unboxed, out=": lambda x: torch.mm(torch.eye(2, device=DEVICE), torch.eye(2, device=DEVICE), out=x),
    "boxed": lambda x: x.cauchy_(),
    "boxed, out=": lambda x: torch.logcumsumexp(torch.ones(2, 2, device=DEVICE), 0, out=x),
    "of lists": lambda x: torch._fused_sgd_(
        [x], [torch.ones_like(x)], [], weight_decay=0.0, momentum=0.0, lr=1.0, dampening=0.0, nesterov=False,
        maximize=False, is_first_step=True,
    ),
    "from the host": lambda x: x.copy_(torch.zeros(2, 2)),
    "from the host, converted": lambda x: x.copy_(torch.zeros(2, 2).double()),
    "from another device": lambda x: x.copy_(torch.zeros(2, 2, device=DEVICE_1)),
    "copy": lambda x: x.copy_(torch.zeros(2, 2, device=DEVICE)),
    "resized": lambda x: x.resize_(4, 4).fill_(0),
    "an output that grows": lambda x: torch.sin(torch.ones(8, device=DEVICE), out=x.resize_(0)),
    "through a view": lambda x: x[0].fill_(7),
    "not told by the schema": lambda x: torch.native_batch_norm(
        torch.ones(2, 4, device=DEVICE), None, None, x.view(4), torch.ones(4, device=DEVICE), True, 0.1, 1e-5
    ),
}  # fmt: skip


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("which", [0, 1], ids=["the original", "the clone"])
def test_writing_separates_and_leaves_the_other_one_as_it_was(write: Callable[[Tensor], object], which: int) -> None:
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    original = values.to(DEVICE)
    pair = (original, torch._lazy_clone(original))
    assert all(map(torch._C._is_cow_tensor, pair))
    written, other = pair[which], pair[1 - which]
    write(written)
    assert not torch._C._is_cow_tensor(written)
    assert_same(other, values)
    assert not torch.equal(written.cpu(), values)
    # The tensor that was not written can now be written, too: it has the memory for itself.
    assert_same(other.mul_(2), values * 2)
    assert not torch.equal(written.cpu(), values * 2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool], ids=str)
def test_the_last_one_that_shares_keeps_the_memory(dtype: torch.dtype) -> None:
    a = torch.ones(4, dtype=dtype, device=DEVICE)
    memory = torch._C._data_address(a)
    b = torch._lazy_clone(a)
    b += torch.ones(4, dtype=dtype, device=DEVICE)
    a += torch.ones(4, dtype=dtype, device=DEVICE)
    assert torch._C._data_address(a) == memory != torch._C._data_address(b)


def test_a_kernel_may_read_a_tensor_and_its_clone_and_write_one() -> None:
    a = torch.arange(6.0, device=DEVICE)
    b = torch._lazy_clone(a)
    a.index_add_(0, torch.tensor([1, 1], device=DEVICE), b[4:])
    assert_same([a, b], [torch.tensor([0.0, 10, 2, 3, 4, 5]), torch.arange(6.0)])


def test_a_result_over_an_operand_shares_with_it_and_not_with_the_clone() -> None:
    a = torch.arange(4.0, device=DEVICE)
    b = torch._lazy_clone(a)
    returned = b.cauchy_()
    assert returned is b and returned.data_ptr() != a.data_ptr()
    assert_same(a, torch.arange(4.0))


def test_the_memory_is_freed_with_the_last_one_that_shares_it() -> None:
    before = torch.accelerator.memory_allocated()
    a = torch.ones(1000, device=DEVICE)
    b = torch._lazy_clone(a)
    torch.cumsum(b, 0).sum().item()
    assert torch.accelerator.memory_allocated() == before + 4096
    b.uniform_()
    assert torch.accelerator.memory_allocated() == before + 2 * 4096
    del a, b
    assert torch.accelerator.memory_allocated() == before
