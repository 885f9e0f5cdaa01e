"""Only the results of kernels are charged to the device: their temporaries are host memory, in every mode."""

from __future__ import annotations

import gc
from collections.abc import Callable

import programs
import pytest
import torch
from comparison import DEVICE
from dry_programs import Block, step_of
from programs import COMPILER, importing
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from torch_openreg import openreg

MIB = 1 << 20
MODES = ["inline", "async"]


def language_model() -> Callable[[], None]:
    """A training step of a small GPT."""
    torch.manual_seed(0)
    body = [Block(32, heads=4) for _ in range(2)]
    model = nn.Sequential(nn.Embedding(50, 32), *body, nn.LayerNorm(32), nn.Linear(32, 50, bias=False)).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(50, (4, 33)).to(DEVICE)

    return step_of(
        model, optimizer, lambda: F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    )


def image_classifier() -> Callable[[], None]:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3))
    model = nn.Sequential(*layers, nn.GroupNorm(2, 8), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images, labels = torch.rand(4, 3, 12, 12).to(DEVICE), torch.randint(8, (4,)).to(DEVICE)

    return step_of(model, optimizer, lambda: F.cross_entropy(model(images), labels))


def promotions() -> Callable[[], None]:
    """Operators whose CPU kernels convert operands, and reductions in another order of the dimensions."""
    mask, half = (
        torch.ones(64, 32, dtype=torch.bool, device=DEVICE),
        torch.ones(64, 32, dtype=torch.half, device=DEVICE),
    )
    integers, single = torch.ones(64, 32, dtype=torch.int, device=DEVICE), torch.rand(32, 64).to(DEVICE)

    def step() -> None:
        for x in (mask, half, integers, single.t()):
            total = x.sum() + x.sum(1, dtype=torch.float).mean()
            x = x * 2.5 + integers
            values, places = x.sort(dim=0)
            total = (
                total + values.cumsum(1).softmax(0).amax() + torch.cat((x.t(), single)).std() + x[places[0] % 32].sum()
            )
        torch.linalg.vector_norm(half, dtype=torch.float)

    return step


PROGRAMS = {each.__name__: each for each in (language_model, image_classifier, promotions)}


# Operators that make further device tensors by calls of other operators, which a dispatch mode does not see: how many.
OWN_TENSORS = {
    # As on CUDA, indices that are not contiguous are copied.
    "aten.embedding.default": 1,
    # The CPU's kernel gives other strides than PyTorch's meta kernel, so the results are copied (routes/Attention.cpp).
    # CUDA makes no such copies.
    "aten._scaled_dot_product_fused_attention_overrideable.default": 2,
    "aten._scaled_dot_product_fused_attention_overrideable_backward.default": 3,
}


class Results(TorchDispatchMode):
    """Counts the storages that operators return and did not get as operands, and their OWN_TENSORS."""

    count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        addresses = [
            {
                leaf.untyped_storage().data_ptr()
                for leaf in tree_leaves(tree)
                if isinstance(leaf, Tensor) and leaf.device.type == DEVICE and leaf.untyped_storage().nbytes() > 0
            }
            for tree in (result, (args, kwargs))
        ]
        Results.count += len(addresses[0] - addresses[1]) + OWN_TENSORS.get(str(func), 0)
        return result


def allocations() -> int:
    return openreg.memory_stats()["allocation.all.allocated"]


def in_a_fresh_process(call: str) -> None:
    """Calls a function of this module in a process that has run no kernel.

    Two calls of one kind (ResultPlaces.h) can allocate in different orders: PyTorch gives oneDNN a convolution of four
    small images, and not that of one. The second of two such calls has a wrong note, and copies its result.
    """
    code = f"import {__name__}; {__name__}.{call}"
    programs.python(code, PYTHONPATH=importing(__file__), status=0, imports=COMPILER)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_allocation_that_is_charged_is_a_result_and_the_peak_is_the_same_in_every_mode(program: str) -> None:
    in_a_fresh_process(f"every_charged_allocation_is_a_result({program!r})")


def every_charged_allocation_is_a_result(program: str) -> None:
    peaks, counts = {}, {}
    for mode in MODES:
        gc.collect()
        with openreg.execution_mode(mode):
            step = PROGRAMS[program]()
            peaks[mode], counts[mode] = [], []
            for _ in range(3):  # the kernels' first calls are told from later ones
                torch.accelerator.synchronize()
                openreg.reset_peak_memory_stats()
                before, base = allocations(), openreg.memory_allocated()
                Results.count = 0
                with Results():
                    step()
                torch.accelerator.synchronize()
                assert allocations() - before == Results.count
                counts[mode].append(Results.count)
                peaks[mode].append(openreg.max_memory_allocated() - base)
            del step
    assert peaks["inline"] == peaks["async"]
    assert counts["inline"] == counts["async"]


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_a_reduction_to_a_wider_type_needs_no_device_memory_for_its_operand(mode: str) -> None:
    in_a_fresh_process(f"a_reduction_needs_no_device_memory_for_its_operand({mode!r})")


def a_reduction_needs_no_device_memory_for_its_operand(mode: str) -> None:
    with openreg.execution_mode(mode):
        mask = torch.ones(4 * MIB, dtype=torch.bool, device=DEVICE)
        half = mask.half()
        reductions: list[Callable[[], Tensor]] = [
            mask.sum,
            lambda: half.sum(dtype=torch.float),
            lambda: torch.linalg.vector_norm(half, dtype=torch.float),
            lambda: mask.view(2048, -1).sum(1),
        ]
        for reduce in reductions:
            torch.accelerator.synchronize()
            openreg.reset_peak_memory_stats()
            before = openreg.memory_allocated(), openreg.memory_reserved()
            value = reduce()
            torch.accelerator.synchronize()
            assert openreg.max_memory_allocated() - before[0] == max(512, value.nbytes)
            assert openreg.memory_reserved() <= before[1] + 2 * MIB  # a segment of small blocks
            del value
