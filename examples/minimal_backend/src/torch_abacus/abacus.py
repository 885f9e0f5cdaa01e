"""``torch.abacus``: what PyTorch and programs ask a device's module for."""

from __future__ import annotations


# HARDWARE: whether the driver finds a device, how many, and which is current.
def is_available() -> bool:
    """Whether there is a device. As ``torch.cuda.is_available``."""
    return True


is_initialized = is_available  # nothing has to start


def device_count() -> int:
    """The number of devices. As ``torch.cuda.device_count``."""
    return 1


def current_device() -> int:
    """The index of the current device. As ``torch.cuda.current_device``."""
    return 0


def synchronize(device: object = None) -> None:
    """Waits for all work of the device, which is done when a call returns. As ``torch.cuda.synchronize``."""


def _is_in_bad_fork() -> bool:
    """HARDWARE: most drivers do not survive fork(); then this says so in a child."""
    return False


def manual_seed_all(seed: int) -> None:
    """Nothing to seed: no operator of the device draws random numbers. As ``torch.cuda.manual_seed_all``."""
