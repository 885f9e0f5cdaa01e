"""Training steps. A process trains on one device only; the benchmark runs such processes by turns."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.timing import synchronizer


def _mlp(sizes: list[int]) -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Transformer(nn.Module):
    """Two encoder layers over 64 tokens of a vocabulary of 1000, with a prediction for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 128)
        layer = nn.TransformerEncoderLayer(128, nhead=4, dim_feedforward=512, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Linear(128, 1000)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.encoder(self.embedding(tokens)))
        return logits.flatten(0, 1)


def _convolutions() -> nn.Module:
    """Two convolutions whose activations are 64 MB each for 16 images of 256 x 256."""
    layers: list[nn.Module] = []
    for inputs in (3, 16):
        layers += [nn.Conv2d(inputs, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


# Name -> the model, its input, its labels, the optimizer (with the same flags on both devices).
Recipe = tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], Callable[[], torch.Tensor], type, dict[str, object]]
RECIPES: dict[str, Recipe] = {
    "MLP": (
        lambda: _mlp([784, 1024, 1024, 10]),
        lambda: torch.rand(128, 784),
        lambda: torch.randint(10, (128,)),
        torch.optim.SGD,
        {"lr": 0.01, "momentum": 0.9, "foreach": True},
    ),
    "transformer": (
        Transformer,
        lambda: torch.randint(1000, (8, 64)),
        lambda: torch.randint(1000, (8 * 64,)),
        torch.optim.AdamW,
        {"lr": 1e-4, "fused": True},
    ),
    # About 160 operators in a step, each with little work, so the step measures the cost of a call.
    "tiny MLP": (
        lambda: _mlp([16, 16, 16, 16, 16, 16, 16, 10]),
        lambda: torch.rand(8, 16),
        lambda: torch.randint(10, (8,)),
        torch.optim.SGD,
        {"lr": 0.01, "momentum": 0.9, "foreach": False},
    ),
    "MLP, 64 MB activations": (
        lambda: _mlp([64, 64, 64, 10]),
        lambda: torch.rand(1 << 18, 64),
        lambda: torch.randint(10, (1 << 18,)),
        torch.optim.SGD,
        {"lr": 0.01, "foreach": True},
    ),
    "convolution, 64 MB activations": (
        _convolutions,
        lambda: torch.rand(16, 3, 256, 256),
        lambda: torch.randint(10, (16,)),
        torch.optim.SGD,
        {"lr": 0.01, "foreach": True},
    ),
}


def make_step(name: str, device: str, compiled: bool = False) -> Callable[[], None]:
    """A function for one training step of the recipe. ``compiled``: torch.compile compiles forward and backward."""
    torch.manual_seed(0)
    build, make_input, make_labels, optimizer_type, flags = RECIPES[name]
    model, data, labels = build().to(device), make_input().to(device), make_labels().to(device)
    optimizer = optimizer_type(model.parameters(), **flags)
    criterion = nn.CrossEntropyLoss()

    def loss_of(data: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = criterion(model(data), labels)
        return loss

    if compiled:
        loss_of = torch.compile(loss_of)

    def step() -> None:
        optimizer.zero_grad()
        loss_of(data, labels).backward()
        optimizer.step()

    return step


def seconds_a_step(name: str, device: str, quick: bool, compiled: bool = False) -> float:
    """The time of one step of a recipe: an average over about 0.4 seconds, after a warm-up. Waits for the device.

    ``quick``: the time of the second step.
    """
    warm_up, seconds = (1, 0.0) if quick else (3, 0.4)
    step, wait = make_step(name, device, compiled), synchronizer(device)
    for _ in range(warm_up):
        start = time.perf_counter()
        step()
        wait()
        took = time.perf_counter() - start
    number = max(1, round(seconds / took))
    start = time.perf_counter()
    for _ in range(number):
        step()
    wait()
    return (time.perf_counter() - start) / number
