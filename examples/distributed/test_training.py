"""Three mistakes of programs with several ranks, found without a GPU: python -m pytest examples/distributed"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

Ranks = Callable[..., dict[int, tuple[Any, str | None]]]


def train(device: torch.device) -> list[float]:
    torch.manual_seed(dist.get_rank())  # DDP copies the parameters of rank 0 to all ranks, so the seeds may differ
    model = DistributedDataParallel(torch.nn.Linear(4, 2).to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        model(torch.randn(8, 4, device=device)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.module.weight.flatten().tolist()


def test_all_ranks_have_the_same_parameters(ranks: Ranks) -> None:
    results = ranks(2, train)
    assert results[0] == results[1]
    assert results[0][1] is None


def sum_of_the_last_batch(device: torch.device) -> None:
    batch = torch.ones(8 if dist.get_rank() == 0 else 5, device=device)  # the data does not divide evenly
    dist.all_reduce(batch)


def test_a_last_batch_of_another_size_is_named(ranks: Ranks) -> None:
    for _, error in ranks(2, sum_of_the_last_batch).values():
        assert error is not None
        assert "TensorShape=[8]" in error
        assert "TensorShape=[5]" in error


def race(device: torch.device) -> float:
    """Reads the result of an asynchronous collective on another stream, and does not wait for the collective first."""
    x = torch.ones(1000, device=device)
    stream = torch.Stream(device)
    work = dist.all_reduce(x, async_op=True)
    with stream:
        total = x.sum()  # needs work.wait() first
    stream.synchronize()
    work.wait()
    return total.item()


def test_a_missing_wait_shows_in_chaos(ranks: Ranks, monkeypatch: Any) -> None:
    monkeypatch.setenv("OPENREG_EXECUTION", "chaos")
    totals = [result for seed in range(3) for result, _ in (_with_seed(ranks, seed, monkeypatch)).values()]
    assert any(total != 2000 for total in totals)


def _with_seed(ranks: Ranks, seed: int, monkeypatch: Any) -> dict[int, tuple[Any, str | None]]:
    monkeypatch.setenv("OPENREG_CHAOS_SEED", str(seed))
    return ranks(2, race)


def die_in_the_middle(device: torch.device) -> None:
    dist.all_reduce(torch.ones(2, device=device))
    if dist.get_rank() == 1:
        os._exit(1)
    dist.all_reduce(torch.ones(2, device=device))


def test_the_survivor_hears_that_a_rank_has_died(ranks: Ranks) -> None:
    results = ranks(2, die_in_the_middle)
    assert list(results) == [0]
    assert "DistBackendError" in str(results[0][1])
