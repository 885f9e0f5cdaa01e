"""Modules of torch.nn: outputs, gradients of inputs and parameters, and buffers are the CPU's.

A module computes on the device, bit for bit, what the same module with the same parameters computes on the CPU. For
some modules the CPU has a fused kernel, which adds in another order and which the device does not take. Their cases say
``exact=False``, and their results are compared within tolerance.

The modules of PyTorch's database are compared by test_ops_opinfo.py. Here are the others, and forms that the database
does not have.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from comparison import DEVICE, assert_same, leaves, place
from torch import Tensor, nn


@dataclass(frozen=True)
class Case:
    """A module, its arguments, and whether the results must be equal bit for bit."""

    make: Callable[[], nn.Module]
    arguments: Callable[[], tuple[Any, ...]]
    exact: bool = True


def x(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float32)


def labels(count: int, *shape: int) -> Tensor:
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(1))


def vectors(*shape: int) -> Callable[[], tuple[Tensor]]:
    return lambda: (x(*shape),)


def two(*shape: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (x(*shape), x(*shape) * 0.5 + 0.1)


CASES: dict[str, Case] = {
    # Convolutions
    "Conv2d circular": Case(lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), vectors(2, 4, 7, 9)),
    "Conv2d depthwise": Case(lambda: nn.Conv2d(6, 6, 3, groups=6), vectors(2, 6, 8, 8)),
    "Conv2d 1x1": Case(lambda: nn.Conv2d(6, 3, 1), vectors(2, 6, 8, 8)),
    "Conv2d without a batch": Case(lambda: nn.Conv2d(2, 3, 3), vectors(2, 8, 8)),
    "LazyConv2d": Case(lambda: _materialised(nn.LazyConv2d(3, 3), 2, 4, 6, 6), vectors(2, 4, 6, 6)),
    "Unfold and Fold": Case(
        lambda: nn.Sequential(nn.Unfold(2, stride=2), nn.Fold((6, 6), 2, stride=2)), vectors(2, 3, 6, 6)
    ),
    # Recurrent
    # (Not exact: for a CPU input PyTorch multiplies the whole sequence by the input weights at once.)
    "LSTM": Case(lambda: nn.LSTM(5, 7, 2, bidirectional=True), vectors(4, 3, 5), exact=False),
    "LSTM with state": Case(lambda: nn.LSTM(5, 7), lambda: (x(4, 3, 5), (x(1, 3, 7), x(1, 3, 7) * 2)), exact=False),
    "LSTM with projections": Case(lambda: nn.LSTM(5, 7, proj_size=3), vectors(4, 3, 5), exact=False),
    "LSTM of packed sequences": Case(lambda: _Packed(nn.LSTM(5, 7)), vectors(4, 3, 5), exact=False),
    # Attention and transformers
    "MultiheadAttention without weights": Case(
        lambda: _Call(nn.MultiheadAttention(8, 2, batch_first=True), need_weights=False),
        lambda: (x(3, 5, 8), x(3, 5, 8), x(3, 5, 8)),
        exact=False,
    ),
    "Transformer": Case(
        lambda: nn.Transformer(8, 2, 1, 1, 16, 0.0), lambda: (x(5, 3, 8), x(4, 3, 8)), exact=False
    ),
    # Embeddings and linear maps
    "Embedding with max_norm": Case(lambda: nn.Embedding(10, 4, max_norm=0.5), lambda: (labels(10, 3, 5),)),
    "EmbeddingBag": Case(lambda: nn.EmbeddingBag(10, 4, mode="mean"), lambda: (labels(10, 3, 5),)),
    # Normalisation
    "BatchNorm2d in evaluation": Case(lambda: nn.BatchNorm2d(4).eval(), vectors(3, 4, 5, 6)),
    "BatchNorm2d cumulative": Case(lambda: nn.BatchNorm2d(4, momentum=None), vectors(3, 4, 5, 6)),
    "weight norm": Case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), vectors(3, 4)),
    "spectral norm": Case(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), vectors(3, 4)),
    # Pooling
    "MaxUnpool2d": Case(lambda: _Unpool(), vectors(2, 3, 8, 8)),
    # Activations
    "Hardsigmoid": Case(nn.Hardsigmoid, vectors(3, 4, 6)),
    "RReLU": Case(nn.RReLU, vectors(3, 4, 6)),
    # Dropout, with one seed on both sides
    "Dropout": Case(lambda: nn.Dropout(0.4), vectors(20, 30)),
    "Dropout2d": Case(lambda: nn.Dropout2d(0.4), vectors(4, 5, 2, 3)),
    "AlphaDropout": Case(lambda: nn.AlphaDropout(0.4), vectors(20, 30)),
    "FeatureAlphaDropout": Case(lambda: nn.FeatureAlphaDropout(0.4), vectors(4, 5, 6)),
    # Padding, resampling, shapes
    "Upsample nearest": Case(lambda: nn.Upsample(scale_factor=2), vectors(2, 3, 5)),
    "Upsample bilinear": Case(lambda: nn.Upsample((7, 9), mode="bilinear"), vectors(2, 3, 5, 6)),
    "Upsample bicubic": Case(lambda: nn.Upsample(scale_factor=1.5, mode="bicubic"), vectors(2, 3, 5, 6)),
    "Upsample trilinear": Case(lambda: nn.Upsample(scale_factor=2, mode="trilinear"), vectors(1, 2, 3, 4, 5)),
    "PixelShuffle": Case(lambda: nn.PixelShuffle(2), vectors(2, 8, 3, 4)),
    "PixelUnshuffle": Case(lambda: nn.PixelUnshuffle(2), vectors(2, 2, 6, 4)),
    "ChannelShuffle": Case(lambda: nn.ChannelShuffle(2), vectors(2, 6, 3, 4)),
    "Flatten and Unflatten": Case(lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (6, 2))), vectors(2, 3, 4)),
    "CosineSimilarity": Case(nn.CosineSimilarity, two(4, 5)),
    "PairwiseDistance": Case(nn.PairwiseDistance, two(4, 5)),
    # Losses
    "TripletMarginLoss": Case(nn.TripletMarginLoss, lambda: (x(6, 5), x(6, 5) + 0.2, x(6, 5) * -1)),
    "CTCLoss of lists": Case(nn.CTCLoss, lambda: (x(9, 2, 5).log_softmax(2), labels(4, 2, 3) + 1, (9, 8), (3, 2))),
    "AdaptiveLogSoftmaxWithLoss": Case(
        lambda: nn.AdaptiveLogSoftmaxWithLoss(8, 20, [5, 10]), lambda: (x(6, 8), labels(20, 6))
    ),
}  # fmt: skip


class _Packed(nn.Module):
    """A recurrent module over sequences of lengths 4, 3 and 1."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, batch: Tensor) -> tuple[Tensor, list[int]]:
        packed = nn.utils.rnn.pack_padded_sequence(batch, [4, 3, 1])
        output, lengths = nn.utils.rnn.pad_packed_sequence(self.inner(packed)[0])
        return output, lengths.tolist()


class _Call(nn.Module):
    """A module called with options."""

    def __init__(self, inner: nn.Module, **options: Any) -> None:
        super().__init__()
        self.inner, self.options = inner, options

    def forward(self, *arguments: Tensor) -> Any:
        return self.inner(*arguments, **self.options)


class _Unpool(nn.Module):
    def forward(self, batch: Tensor) -> Tensor:
        values, indices = nn.functional.max_pool2d(batch, 2, return_indices=True)
        return nn.functional.max_unpool2d(values, indices, 2)


def _materialised(module: nn.Module, *shape: int) -> nn.Module:
    module(torch.zeros(shape))
    return module


def run(module: nn.Module, arguments: tuple[Any, ...]) -> dict[str, Any]:
    """Outputs, gradients of what is differentiable, and buffers afterwards."""
    inputs = [
        leaf.requires_grad_() for leaf in leaves(arguments) if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]
    torch.manual_seed(0)
    output = module(*arguments)
    scalars = [leaf.square().sum() for leaf in leaves(output) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if scalars:
        torch.stack(scalars).sum().backward()
    return {
        "output": [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in leaves(output)],
        "inputs": [leaf.grad for leaf in inputs],
        "parameters": {name: parameter.grad for name, parameter in module.named_parameters()},
        "buffers": dict(module.named_buffers()),
    }


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_module_computes_what_it_computes_on_the_cpu(case: Case) -> None:
    torch.manual_seed(0)
    module, arguments = case.make(), case.arguments()
    on_device = copy.deepcopy(module).to(DEVICE)
    moved = place(arguments, DEVICE)
    expected = run(module, arguments)
    actual = run(on_device, moved)
    if case.exact:
        assert_same(actual, expected)
    else:
        for a, e in zip(leaves(actual), leaves(expected), strict=True):
            if isinstance(e, Tensor):
                assert a.device.type == torch.device(DEVICE).type
                torch.testing.assert_close(a.cpu(), e, rtol=1e-4, atol=1e-5)
            else:
                assert a == e


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.MultiheadAttention, nn.TransformerEncoderLayer])
def test_modules_with_fast_paths_in_evaluation(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module = kind(8, 8) if kind in (nn.LSTM, nn.GRU) else kind(8, 2, batch_first=True)
    module.eval()
    batch = x(3, 5, 8)
    arguments = (batch, batch, batch) if kind is nn.MultiheadAttention else (batch,)
    with torch.inference_mode():
        expected = module(*arguments)
        actual = module.to(DEVICE)(*place(arguments, DEVICE))
    torch.testing.assert_close(place(actual, "cpu"), expected, rtol=1e-4, atol=1e-5)


def test_a_module_moves_there_and_back() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))
    parameters = list(module.parameters())
    expected = copy.deepcopy(module.state_dict())
    for where in (DEVICE, "cpu", torch.device(DEVICE, 0)):
        module.to(where)
        assert {value.device.type for value in module.state_dict().values()} == {torch.device(where).type}
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True)), "parameters keep their identity"
    assert_same(module.state_dict(), expected)


def test_a_convolutional_network_trains_exactly_as_on_the_cpu() -> None:
    def train(where: str) -> tuple[list[float], dict[str, Tensor]]:
        torch.manual_seed(0)
        model = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3),
            nn.GELU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
        ).to(where)  # fmt: skip
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        losses = []
        for step in range(8):
            generator = torch.Generator().manual_seed(step)
            batch = torch.randn(16, 1, 8, 8, generator=generator).to(where)
            target = torch.randint(4, (16,), generator=generator).to(where)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, model.cpu().state_dict()

    losses, state = train(DEVICE)
    expected_losses, expected_state = train("cpu")
    assert losses == expected_losses
    assert_same(state, expected_state, device="cpu")
