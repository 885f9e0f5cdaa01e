"""Autograd on the device: the CPU's gradients, on the right device and stream, with hooks and transforms."""

from __future__ import annotations

import threading
from typing import ClassVar

import pytest
import torch
import torch.nn.functional as F
from comparison import DEVICE, DEVICE_0, DEVICE_1, assert_same, place
from torch import Tensor
from torch.utils.checkpoint import checkpoint

MODULE = torch.get_device_module(DEVICE)
TWO_DEVICES = pytest.mark.skipif(MODULE.device_count() < 2, reason="needs two devices")


def leaf(*shape: int, where: str = DEVICE, seed: int = 0) -> Tensor:
    values = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return values.to(where).requires_grad_()


def network(x: Tensor, w: Tensor) -> Tensor:
    return F.gelu(x @ w).softmax(-1).square().sum()


def test_backward_accumulates_into_grad() -> None:
    def run(where: str) -> tuple[Tensor, Tensor | None, Tensor | None]:
        x, w = leaf(4, 5, where=where), leaf(5, 6, where=where, seed=1)
        for _ in range(3):
            loss = network(x, w)
            loss.backward()
        return loss, x.grad, w.grad

    assert_same(run(DEVICE), run("cpu"))


def test_gradients_lie_on_the_device_of_their_tensor() -> None:
    x = leaf(3)
    (x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.device == torch.device(DEVICE_0)


def test_backward_through_a_copy_between_host_and_device() -> None:
    x = leaf(3, where="cpu")
    (x.to(DEVICE).exp().cpu() * 2).sum().backward()
    assert x.grad is not None
    assert_same(x.grad, 2 * x.detach().exp(), device="cpu")


@TWO_DEVICES
def test_backward_through_two_devices() -> None:
    x = leaf(3, where=DEVICE_0)
    y = (x * 2).to(DEVICE_1)
    (y * y).sum().backward()
    assert x.grad is not None
    assert x.grad.device == torch.device(DEVICE_0)
    assert_same(x.grad, 8 * x.detach().cpu())


def test_double_backward() -> None:
    def run(where: str) -> tuple[Tensor, ...]:
        x, w = leaf(4, 5, where=where), leaf(5, 6, where=where, seed=1)
        grads = torch.autograd.grad(network(x, w), (x, w), create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in grads), (x, w))

    assert_same(run(DEVICE), run("cpu"))


def test_gradcheck() -> None:
    x = torch.randn(3, 4, dtype=torch.float64, device=DEVICE, requires_grad=True)
    w = torch.randn(4, 2, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, w: torch.tanh(x @ w), (x, w))
    assert torch.autograd.gradgradcheck(lambda x, w: torch.tanh(x @ w), (x, w))


def test_no_grad_inference_mode_and_detach() -> None:
    x = leaf(3)
    with torch.no_grad():
        assert not (x * 2).requires_grad
    with torch.inference_mode():
        y = x * 2
    assert y.is_inference()
    assert not y.requires_grad
    assert not x.detach().requires_grad
    assert_same(y, x.detach().cpu() * 2)


def test_in_place_on_what_backward_needs_is_refused() -> None:
    x = leaf(3)
    y = x.exp()
    y.add_(1)
    message = "one of the variables needed for gradient computation has been modified by an inplace operation"
    with pytest.raises(RuntimeError, match=message):
        y.sum().backward()


def test_in_place_on_a_leaf_is_refused() -> None:
    with pytest.raises(
        RuntimeError, match="^a leaf Variable that requires grad is being used in an in-place operation.$"
    ):
        leaf(3).add_(1)


def test_in_place_and_views_have_the_cpus_gradients() -> None:
    def run(where: str) -> Tensor:
        x = leaf(4, 4, where=where)
        y = x * 1
        y[1:3].mul_(2)
        y[0, 0] = 5
        y.t()[0].exp_()
        return torch.autograd.grad(y.square().sum(), x)[0]

    assert_same(run(DEVICE), run("cpu"))


def test_tensor_hooks_and_retain_grad() -> None:
    x = leaf(3)
    y = x * 2
    y.retain_grad()
    seen: list[Tensor] = []
    x.register_hook(lambda grad: seen.append(grad) or grad * 10)
    y.sum().backward()
    assert_same((y.grad, seen, x.grad), (torch.ones(3), [torch.full((3,), 2.0)], torch.full((3,), 20.0)))


def test_module_hooks() -> None:
    module = torch.nn.Linear(3, 2).to(DEVICE)
    seen: list[torch.device] = []
    module.register_full_backward_hook(lambda m, gi, go: seen.extend(g.device for g in (*gi, *go) if g is not None))
    module(leaf(4, 3)).sum().backward()
    assert seen == [torch.device(DEVICE_0)] * 2


class Cube(torch.autograd.Function):
    """x ** 3. Keeps the devices that were current in backward."""

    devices: ClassVar[list[torch.device]] = []

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors  # type: ignore[attr-defined]
        Cube.devices.append(torch.device(DEVICE, torch.accelerator.current_device_index()))
        return grad * 3 * x**2


@pytest.mark.parametrize("where", [DEVICE_0, pytest.param(DEVICE_1, marks=TWO_DEVICES)])
def test_backward_runs_with_the_forwards_device_current(where: str) -> None:
    Cube.devices.clear()
    x = leaf(3, where=where)
    Cube.apply(x).sum().backward()
    assert x.grad is not None
    assert_same(x.grad, 3 * x.detach().cpu() ** 2)
    assert Cube.devices == [torch.device(where)]


def test_saved_tensor_hooks_can_keep_activations_on_the_cpu() -> None:
    x, w = leaf(4, 5), leaf(5, 6, seed=1)
    expected = torch.autograd.grad(network(x, w), (x, w))
    for pin in (False, True):
        with torch.autograd.graph.save_on_cpu(pin_memory=pin):
            loss = network(x, w)
        assert_same(torch.autograd.grad(loss, (x, w)), place(expected, "cpu"))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_repeats_the_forwards_random_numbers(reentrant: bool) -> None:
    def block(x: Tensor) -> Tensor:
        return F.dropout(x, 0.5).exp()

    def run(where: str, recompute: bool) -> tuple[Tensor, Tensor]:
        torch.manual_seed(3)
        x = leaf(100, where=where)
        y = checkpoint(block, x, use_reentrant=reentrant) if recompute else block(x)
        return y, torch.autograd.grad(y.sum(), x)[0] if not reentrant else _grad_of(y, x)

    assert_same(run(DEVICE, True), run("cpu", False))


def _grad_of(y: Tensor, x: Tensor) -> Tensor:
    y.sum().backward()  # reentrant checkpointing does not work with torch.autograd.grad
    assert x.grad is not None
    return x.grad


def test_anomaly_mode_names_the_forward() -> None:
    with (
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.warns(UserWarning, match="Error detected in SqrtBackward0"),
    ):
        x = torch.tensor([-1.0], device=DEVICE, requires_grad=True)
        with pytest.raises(RuntimeError, match="^Function 'SqrtBackward0' returned nan values in its 0th output.$"):
            x.sqrt().sum().backward()


def test_an_exception_in_backward_keeps_its_type_and_the_device_usable() -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x.clone()

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:  # type: ignore[override]
            raise KeyError("backward")

    with pytest.raises(KeyError, match="backward"):
        Fails.apply(leaf(3)).sum().backward()
    x = leaf(3)
    x.sum().backward()
    assert_same(x.grad, torch.ones(3))


def test_backward_from_several_threads() -> None:
    results: list[Tensor] = [torch.empty(0)] * 4

    def work(number: int) -> None:
        x, w = leaf(16, 16, seed=number), leaf(16, 16, seed=number + 10)
        for _ in range(5):
            (results[number],) = torch.autograd.grad(network(x, w), x)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, actual in enumerate(results):
        x, w = leaf(16, 16, seed=number, where="cpu"), leaf(16, 16, seed=number + 10, where="cpu")
        assert_same(actual, torch.autograd.grad(network(x, w), x)[0])


def test_functional_transforms() -> None:
    x = torch.randn(5, 3, device=DEVICE)
    w = torch.randn(3, device=DEVICE)

    def f(w: Tensor, x: Tensor) -> Tensor:
        return torch.sin(x @ w)

    for transformed in (
        lambda w, x: torch.func.grad(lambda w: f(w, x).sum())(w),
        lambda w, x: torch.func.vmap(torch.func.grad(f), in_dims=(None, 0))(w, x),
        lambda w, x: torch.func.jvp(lambda w: f(w, x), (w,), (torch.ones_like(w),)),
        lambda w, x: torch.func.jacrev(f)(w, x),
        lambda w, x: torch.func.hessian(lambda w: f(w, x).sum())(w),
    ):
        torch.testing.assert_close(place(transformed(w, x), "cpu"), transformed(w.cpu(), x.cpu()))


def test_sparse_gradients_of_an_embedding() -> None:
    def run(where: str) -> Tensor:
        torch.manual_seed(0)
        module = torch.nn.Embedding(10, 3, sparse=True)
        module.to(where)
        module(torch.tensor([1, 4, 1], device=where)).sum().backward()
        assert module.weight.grad is not None
        return module.weight.grad.coalesce()

    assert_same(run(DEVICE), run("cpu"))


def test_integers_that_autograd_tracks_are_operands_as_on_the_cpu() -> None:
    def compare(device: str) -> torch.Tensor:
        x = torch.arange(3.0).to(device).requires_grad_()
        counts = torch.ones(3, dtype=torch.int64).to(device)
        counts.lt_(x)
        assert counts.requires_grad  # the formula of lt_() has a gradient, of zeros
        return counts.lt_(torch.ones(()).to(device)).detach()

    assert_same(compare(DEVICE), compare("cpu"))
