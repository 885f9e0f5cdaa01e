"""The second step: a fallback to the CPU, and an allocator that keeps memory. Skipped in a build of the first step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(
    not torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.PrivateUse1), reason="the first step"
)

MIB = 1 << 20


def test_an_operator_that_the_device_lacks_runs_on_the_cpu() -> None:
    x = torch.arange(6, device="abacus").reshape(2, 3)
    assert x.cumsum(1).device == torch.device("abacus", 0)
    assert x.cumsum(1).tolist() == [[0, 1, 3], [3, 7, 12]]
    assert repr(torch.arange(3.0, device="abacus")) == "tensor([0., 1., 2.], device='abacus:0')"
    y = torch.arange(4.0, device="abacus")
    y[1:].cumsum_(0)
    assert y.tolist() == [0, 1, 3, 6]
    out = torch.empty(0, device="abacus")
    assert torch.cumsum(y, 0, out=out) is out and out.tolist() == [0, 1, 4, 10]
    assert y[y > 2].tolist() == [3, 6]


def test_a_call_that_the_devices_kernel_refuses_runs_on_the_cpu() -> None:
    x = torch.arange(6, device="abacus").reshape(2, 3)
    assert (x + 1).sum(1).tolist() == [6, 15]
    assert x.add_(1, alpha=2).tolist() == [[2, 3, 4], [5, 6, 7]]
    assert (x.double() @ x.t().double()).tolist() == [[29, 56], [56, 110]]
    assert nn.functional.mse_loss(x.float(), x + 1.0, reduction="sum").item() == 6


def test_networks_of_other_operators_learn() -> None:
    torch.manual_seed(0)

    def network() -> nn.Module:
        return nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.GELU(), nn.Flatten(), nn.Linear(32, 2))

    model, there = network(), network()
    there.load_state_dict(model.state_dict())
    there.to("abacus")
    tokens, labels = torch.randint(9, (8, 4)), torch.randint(2, (8,))
    for device, each in (("cpu", model), ("abacus", there)):
        optimizer = torch.optim.AdamW(each.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(each(tokens.to(device)), labels.to(device)).backward()
            optimizer.step()
    for ours, theirs in zip(there.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-4, atol=1e-5)


# ---- The allocator


def stats(name: str, pool: str = "all") -> int:
    return torch.accelerator.memory_stats()[f"{name}.{pool}.current"]


@pytest.fixture(autouse=True)
def empty_cache() -> Iterator[None]:
    torch.accelerator.empty_cache()
    yield


def block(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="abacus")


def test_small_blocks_share_a_segment_and_large_ones_have_their_own() -> None:
    reserved, segments = stats("reserved_bytes"), stats("segment")
    small = [block(1000) for _ in range(4)]
    assert small[1].data_ptr() - small[0].data_ptr() == 1024  # a multiple of 512
    assert stats("reserved_bytes") - reserved <= 2 * MIB
    before = stats("reserved_bytes", "large_pool")
    large = block(11 * MIB + 1)
    assert stats("reserved_bytes", "large_pool") - before == 12 * MIB
    medium = block(3 * MIB), block(3 * MIB)
    assert stats("reserved_bytes", "large_pool") - before == 32 * MIB
    del small, large, medium
    torch.accelerator.empty_cache()
    assert (stats("reserved_bytes"), stats("segment")) == (reserved, segments)


def test_freed_memory_is_used_again_and_neighbours_are_merged() -> None:
    first, second, third = block(4 * MIB), block(4 * MIB), block(4 * MIB)
    start, segments = first.data_ptr(), stats("segment")
    assert (second.data_ptr() - start, third.data_ptr() - start) == (4 * MIB, 8 * MIB)
    del first
    again = block(4 * MIB)
    assert again.data_ptr() == start
    del again, third
    del second  # both of its neighbours are free, and the segment is one block again
    whole = block(9 * MIB), block(9 * MIB)
    assert (whole[0].data_ptr(), stats("segment")) == (start, segments)


def test_the_statistics_count_bytes_and_their_peak() -> None:
    allocated = torch.accelerator.memory_allocated()
    torch.accelerator.reset_peak_memory_stats()
    tensor = block(5 * MIB + 1)
    assert torch.accelerator.memory_allocated() - allocated == 5 * MIB + 512
    assert stats("allocated_bytes") == stats("active_bytes") == torch.accelerator.memory_allocated()
    assert torch.accelerator.memory_reserved() >= torch.accelerator.memory_allocated()
    del tensor
    assert torch.accelerator.memory_allocated() == allocated
    assert torch.accelerator.max_memory_allocated() - allocated == 5 * MIB + 512
    torch.accelerator.reset_peak_memory_stats()
    assert torch.accelerator.max_memory_allocated() == allocated


def test_free_segments_go_back_before_memory_runs_out() -> None:
    reserved = torch.accelerator.memory_reserved()
    tensor = block(30 * MIB)
    del tensor
    assert torch.accelerator.memory_reserved() - reserved == 30 * MIB
    before = torch.accelerator.memory_stats()
    with pytest.raises(torch.OutOfMemoryError, match="^abacus out of memory. Tried to allocate 1000000000000000 bytes"):
        block(10**15)
    after = torch.accelerator.memory_stats()
    assert after["num_alloc_retries"] == before["num_alloc_retries"] + 1
    assert (after["num_ooms"] - before["num_ooms"], torch.accelerator.memory_reserved()) == (1, reserved)
