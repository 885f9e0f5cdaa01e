"""The device trains a network as the CPU does, and refuses what it lacks: ``pytest tests``, after the installation."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

# The second step registers a fallback, with which no operator is missing.
step_1_only = pytest.mark.skipif(
    torch._C._dispatch_has_backend_fallback(torch._C.DispatchKey.PrivateUse1), reason="with a fallback"
)


def points(count: int = 64) -> tuple[torch.Tensor, torch.Tensor]:
    """Points in 8 dimensions, each near one of 4 corners, and a matrix with a 1 in the column of the point's corner."""
    generator = torch.Generator().manual_seed(0)
    classes = torch.randint(4, (count,), generator=generator)
    corners = torch.randn(4, 8, generator=generator)
    return corners[classes] + 0.3 * torch.randn(count, 8, generator=generator), torch.eye(4)[classes]


def train(device: str, momentum: float = 0.9, steps: int = 40) -> tuple[nn.Module, list[float]]:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum, weight_decay=1e-3)
    model.to(device)  # keeps the parameters that the optimizer knows
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


OUT_FORMS = {
    "add": lambda a, b, out: torch.add(a, b[:2, 0:1], alpha=2, out=out),
    "mul": lambda a, b, out: torch.mul(a, 3, out=out),
    "mm": lambda a, b, out: torch.mm(a, b, out=out),
    "addmm": lambda a, b, out: torch.addmm(b[0], a, b, beta=0.5, out=out),
    "sum": lambda a, b, out: torch.sum(a, 0, out=out),
    "threshold_backward": lambda a, b, out: torch.ops.aten.threshold_backward.grad_input(a, a, 0, grad_input=out),
}


@pytest.mark.parametrize("compute", OUT_FORMS.values(), ids=OUT_FORMS)
@pytest.mark.parametrize(
    "make", [lambda x: x[:0], lambda x: x[:1], lambda x: x[:30], lambda x: x[:24].view(4, 6).t()[::2, ::2]]
)
def test_an_output_gets_its_size_and_nothing_beside_it_changes(compute, make) -> None:
    a, b = torch.arange(6.0).reshape(2, 3) - 2, torch.arange(12.0).reshape(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # PyTorch warns that it resizes the output
        memory, expected = torch.full((64,), -1.0).to("abacus"), torch.full((64,), -1.0)
        out, wanted = make(memory), make(expected)
        assert compute(a.to("abacus"), b.to("abacus"), out) is out
        compute(a, b, wanted)
    assert out.shape == wanted.shape
    torch.testing.assert_close(out.cpu(), wanted)
    torch.testing.assert_close(memory.cpu(), expected)


@pytest.mark.parametrize("compute", OUT_FORMS.values(), ids=OUT_FORMS)
def test_an_output_of_another_device_or_of_integers_is_refused(compute) -> None:
    a, b = torch.ones(2, 3, device="abacus"), torch.ones(3, 4, device="abacus")
    integers = torch.zeros(2, 3, dtype=torch.int64, device="abacus")
    for out in (torch.zeros(2, 3), integers)[: 1 if compute is OUT_FORMS["sum"] else 2]:  # a sum of integers exists
        with pytest.raises(RuntimeError, match="^Expected (all tensors|out tensor)|can't be cast"):
            compute(a, b, out)
        assert not out.cpu().any()


def test_a_model_is_saved_loaded_and_copied(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    parameters = list(model.parameters())
    model.to("abacus")
    assert all(ours is theirs for ours, theirs in zip(parameters, model.parameters(), strict=True))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    for where in ("abacus", "abacus:0", "cpu"):
        loaded = torch.load(tmp_path / "model.pt", map_location=where)
        assert loaded["weight"].device.type == where.partition(":")[0]
        assert torch.equal(loaded["weight"].cpu(), model.weight.cpu())
    assert torch.load(tmp_path / "model.pt")["bias"].device == torch.device("abacus", 0)
    assert torch.equal(copy.deepcopy(model).weight.cpu(), model.weight.cpu())


def test_a_tensor_is_resized() -> None:
    x = torch.arange(4.0).to("abacus")
    assert x.resize_(2).cpu().tolist() == [0, 1]
    assert x.resize_(2, 3).shape == (2, 3) and x.cpu().reshape(-1)[:4].tolist() == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match="out of bounds for storage"):
        x.set_(x.untyped_storage(), 0, (7,), (1,))


@step_1_only
def test_an_operator_that_the_device_lacks_is_an_error_that_names_it() -> None:
    a = torch.ones(2, device="abacus")
    with pytest.raises(NotImplementedError, match=r"Could not run 'aten::cumsum.out' .* 'abacus' backend"):
        a.cumsum(0)
    with pytest.raises(NotImplementedError, match="^abacus has the mean of a loss only"):
        nn.functional.mse_loss(a, a, reduction="sum")
    with pytest.raises(NotImplementedError, match="^abacus computes in float32, not in"):
        a.double() + 1


def test_what_the_device_refuses_is_an_error_that_says_why() -> None:
    a = torch.ones(2, device="abacus")
    with pytest.raises(RuntimeError, match="^Expected all tensors to be on the same device"):
        a + torch.ones(2)
    with pytest.raises(RuntimeError, match="^There is one abacus device, with the index 0, but got 1"):
        torch.ones(2, device="abacus:1")
    with pytest.raises(RuntimeError, match="^There is one abacus device"), torch.abacus.device(1):
        pass
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
