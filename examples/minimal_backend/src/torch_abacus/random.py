"""The state of the device's random numbers. ``torch.random.fork_rng()`` and checkpointing of activations call these."""

from __future__ import annotations

import torch

from torch_abacus import _C


def get_rng_state(device: torch.device | str | int = "abacus") -> torch.Tensor:
    """The state of the default generator: 16 bytes, on the CPU. As ``torch.cuda.get_rng_state``."""
    return _C.default_generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: torch.device | str | int = "abacus") -> None:
    """Sets the state of the default generator. As ``torch.cuda.set_rng_state``. Raises RuntimeError for a wrong size."""
    _C.default_generator().set_state(new_state)
