"""The module that becomes ``torch.foo``."""


def is_available() -> bool:
    """Whether there is a device. Like ``torch.cuda.is_available``, this function never raises."""
    return True


def device_count() -> int:
    """The number of devices."""
    return 1
