"""Methods of ``torch.Tensor`` that PyTorch implements only for the devices it knows: rows of torch_openreg._upstream.

For tensors of other devices these methods call PyTorch's own. They also call PyTorch's own method for a subclass with
``__torch_function__``; PyTorch's method then calls these methods again, with ``__torch_function__`` switched off.
"""

from __future__ import annotations

import functools
from enum import IntEnum
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from torch_openreg import _C
from torch_openreg._identity import device_type

from . import current_device


def _for_this_device(method: Any) -> Any:
    @functools.wraps(method)
    def call(original: Any, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if has_torch_function_unary(self) or self.device.type != device_type:
            return original(self, *args, **kwargs)
        return method(original, self, *args, **kwargs)

    return call


# LITERALINCLUDE START: DLPACK
@_for_this_device
def dlpack_device(original: Any, self: torch.Tensor) -> tuple[IntEnum, int]:
    """DLPack's type for devices of extensions, and the device's index.

    PyTorch's own method knows the device only as "privateuse1", and not by the name that the backend gave the device.
    """
    from torch.utils.dlpack import DLDeviceType

    return DLDeviceType.kDLExtDev, self.device.index


@_for_this_device
def dlpack(original: Any, self: torch.Tensor, *, stream: int | None = -1, **options: Any) -> Any:
    """As for a CUDA tensor. The consumer's ``stream`` waits for the current stream.

    ``stream`` is an integer from ``torch.Stream.native_handle``. None means the default stream; -1 (default) means that
    no stream has to wait.
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


@_for_this_device
def deepcopy(original: Any, self: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Copies a tensor with its backend metadata. PyTorch's own method does not copy the metadata."""
    result = original(self, memo)
    metadata = torch._utils.get_tensor_metadata(self)
    for resolved in ("conj", "neg"):
        metadata.pop(resolved, None)
    if metadata:
        torch._utils.set_tensor_metadata(result, metadata)
    return result
