"""The module that becomes ``torch.foo``."""


def is_available() -> bool:
    """Whether there is a device. As ``torch.cuda.is_available``, it never raises."""
    return True


def device_count() -> int:
    """The number of devices."""
    return 1
