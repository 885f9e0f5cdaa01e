"""The device's times and memory in PyTorch's tables, under its name: ``sort_by="self_openreg_time_total"``.

PyTorch's own names contain ``device``, such as ``self_device_time_total``. The heads of the tables have the device's
name. For CUDA and XPU, PyTorch also accepts ``cuda`` and ``xpu`` instead of ``device``.
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
    """Adds the names with ``openreg`` instead of ``device``. A second call changes nothing."""
    for owner in (FunctionEvent, FunctionEventAvg):
        for name in NAMES:
            setattr(owner, name.replace("device", "openreg"), property(attrgetter(name)))
