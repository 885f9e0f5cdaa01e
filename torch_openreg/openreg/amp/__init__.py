"""Mixed precision, as ``torch.cuda.amp``: the functions of ``torch.amp``, for this device."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.amp import autocast as _autocast
from torch.amp.grad_scaler import GradScaler as _GradScaler

from torch_openreg._identity import device_type

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("openreg")`` accepts. The first is the default. PyTorch calls this function."""
    return [torch.float16, torch.bfloat16]


class autocast(_autocast):
    """``torch.autocast("openreg", ...)`` with the same arguments ``enabled``, ``dtype`` and ``cache_enabled``."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__(device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """``torch.amp.GradScaler("openreg", ...)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(device_type, *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=device_type)
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=device_type)
