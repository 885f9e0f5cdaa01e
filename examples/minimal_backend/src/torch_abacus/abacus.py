"""``torch.abacus``: the functions that PyTorch and programs call in a device's module."""

from __future__ import annotations

import torch

from torch_abacus import _C


# HARDWARE: ask the driver whether it finds a device, how many devices there are, and which device is current.
def is_available() -> bool:
    """Whether there is a device. As ``torch.cuda.is_available``."""
    return True


is_initialized = is_available  # the device needs no start


def device_count() -> int:
    """The number of devices. As ``torch.cuda.device_count``."""
    return 1


def current_device() -> int:
    """The index of the current device. As ``torch.cuda.current_device``."""
    return 0


# LITERALINCLUDE START: DEVICE
class device(torch.accelerator.device_index):
    """Makes a device current in a ``with`` block. As ``torch.cuda.device``. ``torch.load`` needs it."""

    def __init__(self, device: torch.device | str | int) -> None:
        super().__init__(device if isinstance(device, int) else torch.device(device).index)


# LITERALINCLUDE END: DEVICE


def synchronize(device: torch.device | str | int | None = None) -> None:
    """Waits until the device has done all work. As ``torch.cuda.synchronize``."""
    torch.accelerator.synchronize(device)


def _is_in_bad_fork() -> bool:
    """HARDWARE: most drivers do not work in a child that was forked after the driver had started.

    With such a driver, this function must return True in such a child. ``torch.manual_seed()`` then leaves the device
    out.
    """
    return False


def get_amp_supported_dtype() -> list[torch.dtype]:
    """No dtype: the device has no autocast. Checkpointing of activations asks, too."""
    return []


def manual_seed_all(seed: int) -> None:
    """Sets the seed of the device's random numbers, if the device has any. ``torch.manual_seed()`` calls it."""
    if hasattr(_C, "default_generator"):
        _C.default_generator().manual_seed(seed)


if hasattr(_C, "default_generator"):  # the third step
    from torch_abacus.random import get_rng_state, set_rng_state  # noqa: F401

    _initialized = True  # only with this name does a checkpoint of activations keep the state of the generator
