"""The device's identity: what differs between the types under which PyTorch can know the device.

The device's own type is "openreg", and TORCH_OPENREG_AS can choose another one: a sub-package whose name is the type
after an underscore, with a file _identity.py. All other code reads what differs from `identity`, and does not ask which
type it is.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch_openreg._environment import modules_of_parts, parts_with

asked_type = os.environ.get("TORCH_OPENREG_AS", "")


@dataclass(frozen=True)
class DeviceIdentity:
    """The values of one type.

    Args:
        type: the type of the devices, as in ``torch.device(type)``.
        dispatch_key: the key of PyTorch's dispatcher.
        one: the device in a sentence of an error message.
        kind: what the device is, in the message of a failed start.
        note: what the doctor adds about a device of this type.
        phases: the steps of the start: a module and a tuple of functions in it.
        library: the shared library with the operators.
        operators: for the name of an operator of PrivateUse1, the name of the operator that this type has instead.
        taken_in: the kind of builds of PyTorch, as the doctor names it, in which the type is that of real GPUs.
    """

    type: str = "openreg"
    dispatch_key: str = "PrivateUse1"
    one: str = "an openreg device"
    kind: str = "device"
    note: str = ""
    phases: str = "torch_openreg._loader:PHASES"
    library: str = "libtorch_openreg.so"
    operators: Mapping[str, str] = field(default_factory=dict)
    taken_in: str = ""


def other_identities() -> list[DeviceIdentity]:
    """The identities besides the device's own."""
    return [module.IDENTITY for module in modules_of_parts("_identity")]


def _chosen() -> DeviceIdentity:
    if f"_{asked_type}" in parts_with("_identity.py"):
        return next(each for each in other_identities() if each.type == asked_type)
    return DeviceIdentity()  # also for an unknown type, which _environment.check() reports


identity = _chosen() if asked_type else DeviceIdentity()
"""The identity of this process's devices."""

device_type = identity.type


facts: dict[str, dict[str, Any]] = {}
"""What else the doctor reports about the devices: title -> "name", "about" and "texts" (property -> value)."""


def is_still_chosen() -> bool:
    """Whether TORCH_OPENREG_AS still asks for this type. A later change of the variable has no effect."""
    return (os.environ.get("TORCH_OPENREG_AS") or "openreg") == (asked_type or "openreg")
