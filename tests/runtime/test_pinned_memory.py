"""Pinned host memory: what is pinned, its reuse after the streams that read it, its statistics, DataLoader."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import programs
import pytest
import torch
from comparison import DEVICE, PRELUDE
from programs import resident
from torch.utils.data import DataLoader, TensorDataset

from torch_openreg import openreg

MIB = 1 << 20


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    gc.collect()
    openreg.init()  # before it, empty_host_cache() does nothing
    openreg.synchronize()
    torch.accelerator.empty_host_cache()
    yield


def pinned(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=True)


def test_what_is_pinned_says_so() -> None:
    ordinary = torch.arange(10)
    copy = ordinary.pin_memory()
    assert not ordinary.is_pinned()
    assert copy.is_pinned() and copy.equal(ordinary) and copy.device.type == "cpu"
    assert copy[3:].is_pinned() and copy.untyped_storage().is_pinned()
    assert copy.pin_memory() is copy
    assert torch.zeros(3, pin_memory=True).is_pinned() and torch.empty(3, pin_memory=True).is_pinned()
    assert copy.to(DEVICE).to("cpu").is_pinned() is False


def test_the_statistics_have_cudas_keys_and_add_up() -> None:
    openreg.reset_accumulated_host_memory_stats()
    openreg.reset_peak_host_memory_stats()
    before = openreg.host_memory_stats()
    a, b = pinned(3 * MIB), pinned(100)  # rounded up to powers of two
    stats = openreg.host_memory_stats()
    assert list(stats) == sorted(stats)
    groups = ("allocations", "allocated_bytes", "active_requests", "active_bytes")
    metrics = ("allocated", "current", "freed", "peak")
    times = ("avg", "count", "max", "min", "total")
    assert set(stats) == (
        {f"{group}.{m}" for group in groups for m in metrics}
        | {f"{group}.{t}" for group in ("host_alloc_time", "host_free_time") for t in times}
        | {"num_host_alloc", "num_host_free"}
    )
    assert stats["active_bytes.current"] - before["active_bytes.current"] == 4 * MIB + 128
    assert stats["allocated_bytes.current"] - before["allocated_bytes.current"] == 4 * MIB + 128
    assert (stats["num_host_alloc"], stats["num_host_free"], stats["host_alloc_time.count"]) == (2, 0, 2)
    del a, b
    stats = openreg.host_memory_stats()
    assert stats["active_bytes.current"] == before["active_bytes.current"]
    assert stats["allocated_bytes.current"] - before["allocated_bytes.current"] == 4 * MIB + 128
    torch.accelerator.empty_host_cache()
    stats = openreg.host_memory_stats()
    assert stats["allocated_bytes.current"] == before["allocated_bytes.current"]
    assert (stats["num_host_free"], stats["host_free_time.count"]) == (2, 2)


def test_emptying_the_host_cache_gives_the_pages_back() -> None:
    before = resident()
    tensor = pinned(64 * MIB).fill_(1)
    assert resident() - before > 60 * MIB
    del tensor
    assert resident() - before > 60 * MIB  # cached
    torch.accelerator.empty_host_cache()
    assert resident() - before < 4 * MIB


def test_freed_memory_is_handed_out_again() -> None:
    first = pinned(MIB)
    address = first.data_ptr()
    del first
    assert pinned(MIB).data_ptr() == address
    assert openreg.host_memory_stats()["allocations.current"] >= 1


REUSED = """
n = 1 << 20
stream = torch.Stream(DEVICE)
target = torch.zeros(n, device=DEVICE, dtype=torch.int32)
openreg.synchronize()
wrong = reused = 0
addresses = set()
for turn in range(60):
    source = torch.empty(n, dtype=torch.int32, pin_memory=True)
    reused += source.data_ptr() in addresses
    addresses.add(source.data_ptr())
    source.fill_(turn)
    with stream:
        target.copy_(source, non_blocking=True)
    del source                                   # the copy may not have run
    other = torch.empty(n, dtype=torch.int32, pin_memory=True).fill_(-1)
    with stream:
        wrong += int((target != turn).sum().item())
print(wrong, reused > 0)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_memory_that_a_stream_still_reads_is_not_handed_out(mode: str) -> None:
    programs.python(PRELUDE + REUSED, OPENREG_EXECUTION=mode, status=0, output="0 True\n")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_pins_its_batches(workers: int) -> None:
    data = TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16))
    seen = []
    for inputs, labels in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
        assert inputs.is_pinned() and labels.is_pinned()
        moved = inputs.to(DEVICE, non_blocking=True)
        assert moved.sum(1).cpu().equal(inputs.sum(1))
        seen += labels.tolist()
    assert seen == list(range(16))
