"""Random numbers of the device, as ``torch.cuda.random``.

Each device has a default generator. With the same seed, it gives the same sequence as the CPU's generator. Seeding and
reading states do not start the device, so a child that is forked after ``torch.manual_seed`` can still use the device.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from torch_openreg._identity import device_type

from . import _get_generator, current_device, device_count
from ._utils import DeviceLike

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]


def get_rng_state(device: DeviceLike = device_type) -> Tensor:
    """The state of a device's generator: a 1-dimensional uint8 tensor on the CPU. Default: the current device.

    Waits for queued kernels that draw from the generator. As ``torch.cuda.get_rng_state``.
    """
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators: a list of 1-dimensional uint8 tensors on the CPU.

    As ``torch.cuda.get_rng_state_all``.
    """
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = device_type) -> None:
    """Sets the state of a device's generator to ``new_state``. Default: the current device.

    ``new_state`` is a tensor that ``get_rng_state`` returned. Raises TypeError for another dtype than uint8, and
    RuntimeError for another shape. As ``torch.cuda.set_rng_state``.
    """
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Sets the states of the generators of devices 0, 1, ... to ``new_states``.

    Each state has the shape and dtype that ``get_rng_state`` returns. As ``torch.cuda.set_rng_state_all``.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator with ``seed``. Does nothing if there is no device.

    As ``torch.cuda.manual_seed``.
    """
    if device_count():
        _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all devices with ``seed``. ``torch.manual_seed`` does this too.

    As ``torch.cuda.manual_seed_all``.
    """
    for index in range(device_count()):
        _get_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number. As ``torch.cuda.seed``."""
    if device_count():
        _get_generator().seed()


def seed_all() -> None:
    """Seeds the generators of all devices with the same random number. As ``torch.cuda.seed_all``."""
    if device_count():
        manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator. As ``torch.cuda.initial_seed``."""
    return _get_generator(current_device()).initial_seed()
