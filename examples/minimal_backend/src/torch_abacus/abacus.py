"""``torch.abacus``: the functions that PyTorch and programs call in a device's module."""

from __future__ import annotations

import torch


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


def synchronize(device: object = None) -> None:
    """Returns at once, because all work is done already. ``torch.cuda.synchronize`` waits for the work."""


def _is_in_bad_fork() -> bool:
    """HARDWARE: most drivers do not work in a child that was forked after the driver had started.

    With such a driver, this function must return True in such a child. ``torch.manual_seed()`` then leaves the device
    out.
    """
    return False


def manual_seed_all(seed: int) -> None:
    """Does nothing, because no operator of the device draws random numbers. ``torch.manual_seed()`` calls it."""
