"""The program that the job of github-actions.yml tests. It runs on every accelerator and on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import torch

T = TypeVar("T")


def default_device() -> torch.device:
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def add_positions(x: torch.Tensor) -> torch.Tensor:
    return x + torch.arange(x.shape[-1], device=x.device)


def one_hot(labels: torch.Tensor, classes: int) -> torch.Tensor:
    return torch.zeros(len(labels), classes, device=labels.device).scatter_(1, labels[:, None], 1.0)


def histogram(x: torch.Tensor) -> np.ndarray:
    return np.histogram(x.cpu().numpy(), bins=4)[0]


def download(x: torch.Tensor) -> np.ndarray:
    """Copies through pinned memory without blocking, so that the host could do other work during the copy."""
    on_device = x.device.type != "cpu"
    host = torch.empty(x.shape, dtype=x.dtype, pin_memory=on_device)
    host.copy_(x, non_blocking=True)
    if on_device:
        torch.accelerator.synchronize(x.device)
    return host.numpy().copy()


def in_largest_batch(run: Callable[[torch.Tensor], T], x: torch.Tensor) -> T:
    """The result of ``run`` for as much of ``x`` as the device has memory for."""
    size = len(x)
    while True:
        try:
            return run(x[:size])
        except torch.OutOfMemoryError:
            size //= 2
