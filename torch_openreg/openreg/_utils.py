"""Functions that several modules of ``torch.openreg`` use."""

from __future__ import annotations

from typing import TypeAlias

import torch

from torch_openreg import _C
from torch_openreg._identity import device_type, identity

DeviceLike: TypeAlias = "int | str | torch.device"


def _get_device_index(device: DeviceLike | None, optional: bool = False) -> int:
    """The index in ``device``. Does not check whether there is a device with this index.

    If ``device`` has no index: the current device's index if ``optional``, else a ValueError. Raises ValueError for a
    device of another type. ``torch.load`` calls this function too. As ``torch.cuda._utils._get_device_index``.
    """
    if isinstance(device, int):
        return device
    index = None
    if device is not None:
        device = torch.device(device)
        if device.type != device_type:
            raise ValueError(f"Expected {identity.one}, but got: {device}")
        index = device.index
    if index is not None:
        return index
    if optional:
        return _C._get_device()
    raise ValueError(f"Expected a torch.device with a specified index or an integer, but got:{device}")


def existing_device(device: DeviceLike | None) -> int:
    """The index of ``device`` (default: the current device), after a check that there is such a device.

    Raises torch.AcceleratorError: "The device index is out of range. ...". The check is here because torch.accelerator
    raises a TypeError for an index above 127, and some functions of torch.accelerator ignore a wrong index.
    """
    index = _get_device_index(device, optional=True)
    _C._check_device_index(index)
    return index
