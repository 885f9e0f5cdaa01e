"""Methods of ``torch.Tensor`` that PyTorch writes for the devices it knows. For any other tensor they do what they did.

Each asks PyTorch's own method first whether a subclass handles the call (``__torch_function__``), which then comes back
here with that switched off.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from torch_openreg import _C
from torch_openreg._loader import device_type

from . import current_device


def install() -> None:
    """Replaces the methods, once."""
    for method in (_dlpack, _dlpack_device, _deepcopy):
        name = f"_{method.__name__}__"
        original = getattr(torch.Tensor, name)
        if getattr(original, "__module__", None) != __name__:
            setattr(torch.Tensor, name, _for_this_device(method, original))


def _for_this_device(method: Any, original: Any) -> Any:
    @functools.wraps(original)
    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self) or self.device.type != device_type:
            return original(self, *args, **kwargs)
        return method(original, self, *args, **kwargs)

    call.__module__ = __name__
    return call


# LITERALINCLUDE START: DLPACK
def _dlpack_device(original: Any, self: torch.Tensor) -> tuple[IntEnum, int]:
    """PyTorch's own knows the device as "privateuse1" only, the name it had before it got its own."""
    from torch.utils.dlpack import DLDeviceType

    return DLDeviceType.kDLExtDev, self.device.index


def _dlpack(original: Any, self: torch.Tensor, *, stream: int | None = -1, **options: Any) -> Any:
    """As for a CUDA tensor: ``stream``, an integer from ``torch.Stream.native_handle``, waits for the current stream.

    None is the default stream, -1 (default) means that the consumer needs no waiting.
    """
    if self.device.index != current_device():
        raise BufferError(
            "Can't export tensors on a different openreg device index. "
            f"Expected: {self.device.index}. Current device: {current_device()}."
        )
    capsule = original(self, stream=stream, **options)
    if stream != -1:
        if not 0 <= (stream or 0) < 2**64:
            raise BufferError(f"unsupported stream on openreg: {stream}.")
        _C._order_after_current_stream(stream or 0, self.device.index)
    return capsule


# LITERALINCLUDE END: DLPACK


# LITERALINCLUDE START: BACKEND META DEEPCOPY
def _deepcopy(original: Any, self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """PyTorch's own copies the bytes, and does not ask the backend for its description of them."""
    result = original(self, memo)
    metadata = torch._utils.get_tensor_metadata(self)
    for resolved in ("conj", "neg"):
        metadata.pop(resolved, None)
    if metadata:
        torch._utils.set_tensor_metadata(result, metadata)
    return result


# LITERALINCLUDE END: BACKEND META DEEPCOPY
