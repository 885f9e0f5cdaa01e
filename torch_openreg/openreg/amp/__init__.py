"""Mixed precision, as ``torch.cuda.amp``: the functions of ``torch.amp``, for this device."""

from __future__ import annotations

import functools
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.amp import autocast as _autocast
from torch.amp.grad_scaler import GradScaler as _GradScaler

from torch_openreg._identity import device_type as _own_type

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_amp_supported_dtype"]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that ``torch.autocast("openreg")`` accepts. The first is the default. PyTorch calls this function."""
    return [torch.float16, torch.bfloat16]


class autocast(_autocast):
    """``torch.autocast("openreg", ...)`` with the same arguments ``enabled``, ``dtype`` and ``cache_enabled``."""

    def __init__(self, enabled: bool = True, dtype: torch.dtype = torch.float16, cache_enabled: bool = True) -> None:
        super().__init__(_own_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(_GradScaler):
    """``torch.amp.GradScaler("openreg", ...)``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(_own_type, *args, **kwargs)


_TORCH = os.path.dirname(torch.__file__) + os.sep

custom_fwd = functools.partial(torch.amp.custom_fwd, device_type=_own_type)
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type=_own_type)


def _level_of_caller() -> int:
    """The stacklevel for a warning of the caller of this function: the innermost line outside of PyTorch."""
    level, frame = 2, sys._getframe(2)
    while frame.f_back and frame.f_code.co_filename.startswith(_TORCH):
        level, frame = level + 1, frame.f_back
    return level


def custom_fwd_with_hint(
    original: Callable[..., Any], fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: Any = None
) -> Callable[..., Any]:
    """``torch.amp.custom_fwd``, which warns once for each function if it is for another device than its arguments.

    `cast_inputs` then casts nothing, and the backward pass runs without autocast, with no sign of either.
    """
    if fwd is None:
        return functools.partial(custom_fwd_with_hint, original, device_type=device_type, cast_inputs=cast_inputs)
    decorated = original(fwd, device_type=device_type, cast_inputs=cast_inputs)
    if device_type == _own_type:
        return decorated
    warn = functools.cache(warnings.warn)  # once for each function

    @functools.wraps(decorated)
    def call(*args: Any, **kwargs: Any) -> Any:
        follows = torch.is_autocast_enabled(device_type) or not torch.is_autocast_enabled(_own_type)
        if not follows and any(isinstance(each, torch.Tensor) and each.device.type == _own_type for each in args):
            warn(
                f"{fwd.__qualname__} got a tensor on {_own_type!r} while torch.autocast({_own_type!r}) is on, but its "
                f"custom_fwd(device_type={device_type!r}) follows only torch.autocast({device_type!r}), so it casts "
                f"nothing. Pass device_type={_own_type!r} for tensors of this device.",
                stacklevel=_level_of_caller(),
            )
        return decorated(*args, **kwargs)

    return call
