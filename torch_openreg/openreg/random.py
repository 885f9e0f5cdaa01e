"""Random numbers of the device, as ``torch.cuda.random``.

Each device has a default generator, which yields the CPU's sequence for the same seed. Seeding and reading states start
no device, so ``torch.manual_seed`` before a fork leaves the child free to use it.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from torch_openreg._loader import device_type

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
    """The state of a device's generator, 1-dimensional, uint8, on the CPU. Default: the current device.

    Waits for queued kernels that draw from the generator. As ``torch.cuda.get_rng_state``.
    """
    return _get_generator(device).get_state()


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices' generators, each 1-dimensional, uint8, on the CPU.

    As ``torch.cuda.get_rng_state_all``.
    """
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state: Tensor, device: DeviceLike = device_type) -> None:
    """Puts a device's generator into ``new_state``, which ``get_rng_state`` returned. Default: the current device.

    TypeError for what is not uint8, RuntimeError for another shape. As ``torch.cuda.set_rng_state``.
    """
    _get_generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Puts the generators of devices 0, 1, ... into ``new_states``.

    Their shape and dtype are those that ``get_rng_state`` returns. As ``torch.cuda.set_rng_state_all``.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seeds the current device's generator with ``seed``. Does nothing where there is no device.

    As ``torch.cuda.manual_seed``.
    """
    if device_count():
        _get_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices' generators with ``seed``, as ``torch.manual_seed`` does, too.

    As ``torch.cuda.manual_seed_all``.
    """
    for index in range(device_count()):
        _get_generator(index).manual_seed(int(seed))


def seed() -> None:
    """Seeds the current device's generator with a random number. As ``torch.cuda.seed``."""
    if device_count():
        _get_generator().seed()


def seed_all() -> None:
    """Seeds all devices' generators with one and the same random number. As ``torch.cuda.seed_all``."""
    if device_count():
        manual_seed_all(_get_generator(0).seed())


def initial_seed() -> int:
    """The seed of the current device's generator. As ``torch.cuda.initial_seed``."""
    return _get_generator(current_device()).initial_seed()
