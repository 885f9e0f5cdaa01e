"""What the tests of other people's libraries share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

REASON = "needs the programs of requirements/integrations.txt, which `make test-all` installs"

_HUGGING_FACE = ("torch", "transformers.trainer", "transformers.models.gpt2.modeling_gpt2", "peft")
IMPORTS = {
    "accelerate": _HUGGING_FACE,
    "transformers": _HUGGING_FACE,
    "lightning": ("torch", "lightning.pytorch"),
}
"""Library -> what the server of its programs has imported: programs.start()."""


@contextmanager
def accelerate_on(device: str, **environment: str) -> Iterator[None]:
    """Makes ``device`` the one that accelerate and transformers.Trainer choose.

    accelerate knows some devices by name, and takes the CPU if it finds none of them. Its environment variable names
    another device. accelerate keeps its choice for the process, so this function resets the choice at its end.
    """
    from accelerate.state import AcceleratorState

    settings = {"ACCELERATE_TORCH_DEVICE": device, **environment}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    AcceleratorState._reset_state(reset_partial_state=True)
    try:
        yield
    finally:
        AcceleratorState._reset_state(reset_partial_state=True)
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


def integers(count: int, *shape: int, seed: int = 0) -> torch.Tensor:
    """The same integers below ``count`` on the CPU each time."""
    return torch.randint(count, shape, generator=torch.Generator().manual_seed(seed))


def state_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Copies of the parameters and buffers."""
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def devices_of(model: torch.nn.Module) -> set[str]:
    """Where the parameters are."""
    return {str(parameter.device) for parameter in model.parameters()}
