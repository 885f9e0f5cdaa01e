"""The device's times in PyTorch's tables by the device's name: ``sort_by="self_openreg_time_total"``.

PyTorch's own names are ``self_device_time_total`` and the like; the tables' heads have the device's name, and PyTorch
accepts ``cuda`` and ``xpu`` in place of ``device``.
"""

from __future__ import annotations

from operator import attrgetter

from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg

NAMES = (
    "device_memory_usage",
    "device_time",
    "device_time_total",
    "self_device_memory_usage",
    "self_device_time_total",
)


def install() -> None:
    """Adds the names, once."""
    for owner in (FunctionEvent, FunctionEventAvg):
        for name in NAMES:
            setattr(owner, name.replace("device", "openreg"), property(attrgetter(name)))
