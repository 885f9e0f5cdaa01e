"""What the tests of other people's libraries share. The tests are written as users write programs, for any device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

REASON = "needs the extra `integrations`: pip install 'torch_openreg[integrations]', or run `make test`"


@pytest.fixture(autouse=True, scope="package")
def factories_of_the_default_device() -> None:
    """PyTorch lists its factories at the first use of a default device: here, before a library replaces any of them."""
    from torch.utils._device import _device_constructors

    _device_constructors()


@pytest.fixture(autouse=True, scope="package")
def one_thread() -> Iterator[None]:
    """The models are so small that several threads are slower than one, ten times slower on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
