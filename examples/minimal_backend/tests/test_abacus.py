"""The device trains a network as the CPU does, and refuses what it lacks: ``pytest tests``, after the installation."""

from __future__ import annotations

import pytest
import torch
from torch import nn


def points(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in 8 dimensions, each near one of 4 corners, and a matrix with a 1 in the column of the point's corner."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(4, (count,), generator=generator)
    corners = torch.randn(4, 8, generator=generator)
    return corners[classes] + 0.3 * torch.randn(count, 8, generator=generator), torch.eye(4)[classes]


def train(device: str, momentum: float = 0.9, steps: int = 40) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
    inputs, targets = (each.to(device) for each in points())
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return model, losses


def test_a_network_learns_as_it_learns_on_the_cpu() -> None:
    (here, losses), (there, expected) = train("abacus"), train("cpu")
    torch.testing.assert_close(losses, expected, rtol=1e-3, atol=1e-4)
    for ours, theirs in zip(here.parameters(), there.parameters(), strict=True):
        assert ours.device == torch.device("abacus", 0) and ours.grad is not None
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-3, atol=1e-4)
    inputs, targets = points()
    assert losses[-1] < 0.05 and torch.equal(here(inputs.to("abacus")).cpu().argmax(1), targets.argmax(1))


@pytest.mark.parametrize(
    "make", [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[0, 0], lambda x: x[:0]]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.float16])
def test_a_tensor_travels_in_every_layout(make, dtype) -> None:
    x = make(torch.arange(12).reshape(3, 4).to(dtype))
    there = x.to("abacus")
    assert there.shape == x.shape and torch.equal(there.cpu(), x)
    assert torch.equal(make(torch.arange(12).reshape(3, 4).to(dtype).to("abacus")).contiguous().cpu(), x)


def test_arithmetic_with_numbers_broadcasting_and_views() -> None:
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(3.0)
    a, b = x.to("abacus"), y.to("abacus")
    for f in (lambda p, q: p + q, lambda p, q: p * q, lambda p, q: p.t() * 2 + 1, lambda p, q: p.add(q, alpha=-3)):
        torch.testing.assert_close(f(a, b).cpu(), f(x, y))
    a.t().mul_(2)
    assert torch.equal(a.cpu(), x * 2)
    assert (a @ b.reshape(3, 1)).cpu().tolist() == [[10.0], [28.0]]
    assert (a.sum().item(), a[1, 2].item()) == (30.0, 10.0)


def test_what_the_device_lacks_is_an_error_that_names_it() -> None:
    a = torch.ones(2, device="abacus")
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::cumsum.out' .* 'abacus' backend"):
        a.cumsum(0)
    with pytest.raises(RuntimeError, match="^Expected all tensors to be on the same device"):
        a + torch.ones(2)
    with pytest.raises(RuntimeError, match="^There is one abacus device, with the index 0, but got 1"):
        torch.ones(2, device="abacus:1")
    with pytest.raises(NotImplementedError, match="^abacus has the mean of a loss only"):
        nn.functional.mse_loss(a, a, reduction="sum")
    with pytest.raises(NotImplementedError, match="^abacus computes in float32, not in"):
        a.double() + 1
    for x in (torch.ones(2, dtype=torch.complex64, device="abacus").conj(), torch._neg_view(a)):
        with pytest.raises(NotImplementedError, match="^abacus cannot copy a lazily conjugated or negated tensor"):
            x.cpu()
    with pytest.raises(torch.OutOfMemoryError, match="^abacus out of memory. Tried to allocate 4000000000000000 bytes"):
        torch.empty(10**15, device="abacus")


def test_the_device_is_pytorchs_accelerator() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("abacus")
    assert (torch.accelerator.device_count(), torch.abacus.is_available()) == (1, True)
    torch.accelerator.synchronize()
    assert torch.ones(2).abacus().is_abacus
