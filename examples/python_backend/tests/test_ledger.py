"""The device computes and trains as the CPU does, and refuses what it lacks. Once it is installed: ``pytest tests``."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def train(device: str) -> tuple[list[float], list[torch.Tensor]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    inputs, targets = torch.randn(32, 8).to(device), torch.randint(4, (32,)).to(device)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


def test_a_network_learns_as_it_learns_on_the_cpu() -> None:
    (losses, here), (expected, there) = train("ledger"), train("cpu")
    assert losses == expected and losses[-1] < losses[0]
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(here, there, strict=True))


def test_views_share_memory_and_copies_do_not() -> None:
    x = torch.zeros(2, 3, device="ledger")
    x[0].fill_(1)
    y = x.clone()
    x.t()[2].mul_(5)
    assert (x.cpu().tolist(), y.cpu().tolist()) == ([[1, 1, 5], [0, 0, 0]], [[1, 1, 1], [0, 0, 0]])


def test_the_module_counts_the_operators() -> None:
    before = sum(torch.ledger.calls.values())
    x = torch.ones(2, device="ledger")
    assert (x + x).device == torch.device("ledger", 0)
    assert sum(torch.ledger.calls.values()) > before


def test_what_the_device_lacks_is_an_error() -> None:
    x = torch.ones(2, device="ledger")
    with pytest.raises(RuntimeError, match="^Expected all tensors to be on the same device"):
        x + torch.ones(2)
    with pytest.raises(RuntimeError, match="^Backend doesn't support synchronizing all streams on device"):
        torch.accelerator.synchronize()
    with pytest.raises(NotImplementedError):
        torch.Generator("ledger")


def test_the_device_is_pytorchs_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("ledger")
    assert (torch.accelerator.device_count(), torch.ledger.is_available()) == (1, True)
    assert torch.ones(2).ledger().is_ledger
