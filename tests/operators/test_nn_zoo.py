"""Modules of torch.nn: outputs, gradients of inputs and parameters, and buffers are the CPU's.

A module computes on the device, bit for bit, what the same module with the same parameters computes on the CPU. For
some modules the CPU has a fused kernel, which adds in another order and which the device does not take. Their cases say
``exact=False``, and their results are compared within tolerance.
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


def distribution(*shape: int) -> Tensor:
    return x(*shape).softmax(-1)


def vectors(*shape: int) -> Callable[[], tuple[Tensor]]:
    return lambda: (x(*shape),)


def two(*shape: int) -> Callable[[], tuple[Tensor, Tensor]]:
    return lambda: (x(*shape), x(*shape) * 0.5 + 0.1)


CASES: dict[str, Case] = {
    # Convolutions
    "Conv1d": Case(lambda: nn.Conv1d(4, 6, 3, padding=1, groups=2), vectors(2, 4, 11)),
    "Conv2d": Case(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1), vectors(2, 4, 11, 9)),
    "Conv2d circular": Case(lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), vectors(2, 4, 7, 9)),
    "Conv2d dilated": Case(lambda: nn.Conv2d(4, 6, 3, dilation=2, bias=False), vectors(2, 4, 11, 9)),
    "Conv2d depthwise": Case(lambda: nn.Conv2d(6, 6, 3, groups=6), vectors(2, 6, 8, 8)),
    "Conv2d 1x1": Case(lambda: nn.Conv2d(6, 3, 1), vectors(2, 6, 8, 8)),
    "Conv2d without a batch": Case(lambda: nn.Conv2d(2, 3, 3), vectors(2, 8, 8)),
    "Conv3d": Case(lambda: nn.Conv3d(2, 4, 3), vectors(2, 2, 5, 6, 7)),
    "ConvTranspose1d": Case(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), vectors(2, 4, 11)),
    "ConvTranspose2d": Case(lambda: nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), vectors(2, 4, 5, 6)),
    "ConvTranspose3d": Case(lambda: nn.ConvTranspose3d(2, 3, 3), vectors(2, 2, 4, 5, 3)),
    "LazyConv2d": Case(lambda: _materialised(nn.LazyConv2d(3, 3), 2, 4, 6, 6), vectors(2, 4, 6, 6)),
    "Unfold and Fold": Case(
        lambda: nn.Sequential(nn.Unfold(2, stride=2), nn.Fold((6, 6), 2, stride=2)), vectors(2, 3, 6, 6)
    ),
    # Recurrent
    # (Not exact: for a CPU input PyTorch multiplies the whole sequence by the input weights at once.)
    "RNN": Case(lambda: nn.RNN(5, 7, 2), vectors(4, 3, 5), exact=False),
    "RNN relu": Case(lambda: nn.RNN(5, 7, nonlinearity="relu", batch_first=True), vectors(3, 4, 5), exact=False),
    "LSTM": Case(lambda: nn.LSTM(5, 7, 2, bidirectional=True), vectors(4, 3, 5), exact=False),
    "LSTM with state": Case(lambda: nn.LSTM(5, 7), lambda: (x(4, 3, 5), (x(1, 3, 7), x(1, 3, 7) * 2)), exact=False),
    "LSTM with projections": Case(lambda: nn.LSTM(5, 7, proj_size=3), vectors(4, 3, 5), exact=False),
    "GRU": Case(lambda: nn.GRU(5, 7, 2, batch_first=True), vectors(3, 4, 5), exact=False),
    "RNNCell": Case(lambda: nn.RNNCell(5, 7), vectors(3, 5)),
    "LSTMCell": Case(lambda: nn.LSTMCell(5, 7), vectors(3, 5), exact=False),
    "GRUCell": Case(lambda: nn.GRUCell(5, 7), vectors(3, 5), exact=False),
    "LSTM of packed sequences": Case(lambda: _Packed(nn.LSTM(5, 7)), vectors(4, 3, 5), exact=False),
    # Attention and transformers
    "MultiheadAttention": Case(
        lambda: nn.MultiheadAttention(8, 2), lambda: (x(5, 3, 8), x(6, 3, 8), x(6, 3, 8)), exact=False
    ),
    "MultiheadAttention without weights": Case(
        lambda: _Call(nn.MultiheadAttention(8, 2, batch_first=True), need_weights=False),
        lambda: (x(3, 5, 8), x(3, 5, 8), x(3, 5, 8)),
        exact=False,
    ),
    "TransformerEncoderLayer": Case(lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0), vectors(5, 3, 8), exact=False),
    "TransformerEncoderLayer, norm first": Case(
        lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation="gelu", batch_first=True, norm_first=True),
        vectors(3, 5, 8),
        exact=False,
    ),
    "TransformerDecoderLayer": Case(
        lambda: nn.TransformerDecoderLayer(8, 2, 16, 0.0), lambda: (x(5, 3, 8), x(6, 3, 8)), exact=False
    ),
    "Transformer": Case(
        lambda: nn.Transformer(8, 2, 1, 1, 16, 0.0), lambda: (x(5, 3, 8), x(4, 3, 8)), exact=False
    ),
    # Embeddings and linear maps
    "Embedding": Case(lambda: nn.Embedding(10, 4, padding_idx=2), lambda: (labels(10, 3, 5),)),
    "Embedding with max_norm": Case(lambda: nn.Embedding(10, 4, max_norm=0.5), lambda: (labels(10, 3, 5),)),
    "EmbeddingBag": Case(lambda: nn.EmbeddingBag(10, 4, mode="mean"), lambda: (labels(10, 3, 5),)),
    "Linear": Case(lambda: nn.Linear(5, 6), vectors(3, 4, 5)),
    "Linear without bias": Case(lambda: nn.Linear(5, 6, bias=False), vectors(3, 5)),
    "Bilinear": Case(lambda: nn.Bilinear(3, 4, 5), lambda: (x(6, 3), x(6, 4))),
    # Normalisation
    "BatchNorm1d": Case(lambda: nn.BatchNorm1d(4), vectors(5, 4)),
    "BatchNorm2d": Case(lambda: nn.BatchNorm2d(4), vectors(3, 4, 5, 6)),
    "BatchNorm2d in evaluation": Case(lambda: nn.BatchNorm2d(4).eval(), vectors(3, 4, 5, 6)),
    "BatchNorm3d": Case(lambda: nn.BatchNorm3d(2), vectors(3, 2, 3, 4, 5)),
    "BatchNorm2d without affine": Case(lambda: nn.BatchNorm2d(4, affine=False), vectors(3, 4, 5, 6)),
    "BatchNorm2d cumulative": Case(lambda: nn.BatchNorm2d(4, momentum=None), vectors(3, 4, 5, 6)),
    "GroupNorm": Case(lambda: nn.GroupNorm(2, 4), vectors(3, 4, 5, 6)),
    "LayerNorm": Case(lambda: nn.LayerNorm((5, 6)), vectors(3, 4, 5, 6)),
    "RMSNorm": Case(lambda: nn.RMSNorm(6), vectors(3, 4, 6)),
    "InstanceNorm2d": Case(lambda: nn.InstanceNorm2d(4, affine=True, track_running_stats=True), vectors(3, 4, 5, 6)),
    "LocalResponseNorm": Case(lambda: nn.LocalResponseNorm(2), vectors(3, 4, 5, 6)),
    "weight norm": Case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)), vectors(3, 4)),
    "spectral norm": Case(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), vectors(3, 4)),
    # Pooling
    "MaxPool1d": Case(lambda: nn.MaxPool1d(3, stride=2), vectors(2, 3, 11)),
    "MaxPool2d": Case(lambda: nn.MaxPool2d(3, stride=2, return_indices=True), vectors(2, 3, 9, 11)),
    "MaxPool3d": Case(lambda: nn.MaxPool3d(2), vectors(2, 3, 4, 5, 6)),
    "AvgPool1d": Case(lambda: nn.AvgPool1d(3), vectors(2, 3, 11)),
    "AvgPool2d": Case(lambda: nn.AvgPool2d(2, padding=1), vectors(2, 3, 9, 11)),
    "AvgPool3d": Case(lambda: nn.AvgPool3d(2), vectors(2, 3, 4, 5, 6)),
    "LPPool2d": Case(lambda: nn.LPPool2d(2, 2), vectors(2, 3, 8, 8)),
    "AdaptiveAvgPool2d": Case(lambda: nn.AdaptiveAvgPool2d((3, 4)), vectors(2, 3, 9, 11)),
    "AdaptiveAvgPool2d to one": Case(lambda: nn.AdaptiveAvgPool2d(1), vectors(2, 3, 9, 11)),
    "AdaptiveMaxPool2d": Case(lambda: nn.AdaptiveMaxPool2d(3), vectors(2, 3, 9, 11)),
    "FractionalMaxPool2d": Case(lambda: nn.FractionalMaxPool2d(2, output_ratio=0.5), vectors(2, 3, 9, 11)),
    "MaxUnpool2d": Case(lambda: _Unpool(), vectors(2, 3, 8, 8)),
    # Activations
    **{
        kind.__name__: Case(kind, vectors(3, 4, 6))
        for kind in (
            nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.ELU, nn.SELU, nn.CELU, nn.GELU, nn.SiLU, nn.Mish, nn.Sigmoid, nn.Tanh,
            nn.Softplus, nn.Softsign, nn.Softshrink, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Hardshrink,
            nn.LogSigmoid, nn.Tanhshrink, nn.PReLU, nn.GLU, nn.RReLU,
        )
    },
    "GELU tanh": Case(lambda: nn.GELU("tanh"), vectors(3, 4)),
    "Softmax": Case(lambda: nn.Softmax(dim=1), vectors(3, 4, 5)),
    "LogSoftmax": Case(lambda: nn.LogSoftmax(dim=-1), vectors(3, 4, 5)),
    "Softmin": Case(lambda: nn.Softmin(dim=0), vectors(3, 4)),
    # Dropout, with one seed on both sides
    "Dropout": Case(lambda: nn.Dropout(0.4), vectors(20, 30)),
    "Dropout2d": Case(lambda: nn.Dropout2d(0.4), vectors(4, 5, 2, 3)),
    "AlphaDropout": Case(lambda: nn.AlphaDropout(0.4), vectors(20, 30)),
    "FeatureAlphaDropout": Case(lambda: nn.FeatureAlphaDropout(0.4), vectors(4, 5, 6)),
    # Padding, resampling, shapes
    "ReflectionPad2d": Case(lambda: nn.ReflectionPad2d(2), vectors(2, 3, 5, 6)),
    "ReplicationPad3d": Case(lambda: nn.ReplicationPad3d(1), vectors(2, 3, 3, 4, 5)),
    "CircularPad1d": Case(lambda: nn.CircularPad1d(2), vectors(2, 3, 5)),
    "ZeroPad2d": Case(lambda: nn.ZeroPad2d((1, 2, 0, 1)), vectors(2, 3, 5, 6)),
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
    "L1Loss": Case(nn.L1Loss, two(4, 5)),
    "MSELoss": Case(nn.MSELoss, two(4, 5)),
    "HuberLoss": Case(nn.HuberLoss, two(4, 5)),
    "SmoothL1Loss": Case(lambda: nn.SmoothL1Loss(reduction="sum"), two(4, 5)),
    "CrossEntropyLoss": Case(lambda: nn.CrossEntropyLoss(label_smoothing=0.1), lambda: (x(6, 5), labels(5, 6))),
    "CrossEntropyLoss with weights": Case(
        lambda: nn.CrossEntropyLoss(weight=torch.arange(1.0, 6.0), ignore_index=2), lambda: (x(6, 5), labels(5, 6))
    ),
    "CrossEntropyLoss in 2d": Case(nn.CrossEntropyLoss, lambda: (x(2, 5, 3, 4), labels(5, 2, 3, 4))),
    "CrossEntropyLoss of probabilities": Case(nn.CrossEntropyLoss, lambda: (x(6, 5), distribution(6, 5))),
    "NLLLoss": Case(nn.NLLLoss, lambda: (x(6, 5).log_softmax(1), labels(5, 6))),
    "BCELoss": Case(nn.BCELoss, lambda: (x(6, 5).sigmoid(), distribution(6, 5))),
    "BCEWithLogitsLoss": Case(nn.BCEWithLogitsLoss, lambda: (x(6, 5), distribution(6, 5))),
    "KLDivLoss": Case(
        lambda: nn.KLDivLoss(reduction="batchmean"), lambda: (x(6, 5).log_softmax(1), distribution(6, 5))
    ),
    "PoissonNLLLoss": Case(nn.PoissonNLLLoss, lambda: (x(6, 5), distribution(6, 5))),
    "GaussianNLLLoss": Case(nn.GaussianNLLLoss, lambda: (x(6, 5), distribution(6, 5), x(6, 5).exp())),
    "HingeEmbeddingLoss": Case(nn.HingeEmbeddingLoss, lambda: (x(6, 5), labels(2, 6, 5) * 2 - 1)),
    "CosineEmbeddingLoss": Case(nn.CosineEmbeddingLoss, lambda: (x(6, 5), x(6, 5) + 1, labels(2, 6) * 2 - 1)),
    "MarginRankingLoss": Case(nn.MarginRankingLoss, lambda: (x(6), x(6) * 0.5, labels(2, 6) * 2 - 1)),
    "MultiMarginLoss": Case(nn.MultiMarginLoss, lambda: (x(6, 5), labels(5, 6))),
    "MultiLabelMarginLoss": Case(nn.MultiLabelMarginLoss, lambda: (x(3, 4), torch.tensor([[3, 0, -1, 1]] * 3))),
    "MultiLabelSoftMarginLoss": Case(nn.MultiLabelSoftMarginLoss, lambda: (x(6, 5), labels(2, 6, 5).float())),
    "SoftMarginLoss": Case(nn.SoftMarginLoss, lambda: (x(6, 5), labels(2, 6, 5) * 2 - 1)),
    "TripletMarginLoss": Case(nn.TripletMarginLoss, lambda: (x(6, 5), x(6, 5) + 0.2, x(6, 5) * -1)),
    "CTCLoss": Case(
        nn.CTCLoss,
        lambda: (x(9, 2, 5).log_softmax(2), labels(4, 2, 3) + 1, torch.tensor([9, 8]), torch.tensor([3, 2])),
    ),
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
