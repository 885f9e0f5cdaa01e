"""Storages, their types, sharing and DLPack: the parts of torch/csrc for CUDA that a CPU build does not compile."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import UntypedStorage

from torch_openreg._cuda import _bindings as _C
from torch_openreg.openreg import _reductions

NOT_FOR_OTHERS = (
    "The memory of a simulated CUDA device can only be used by PyTorch: there is no GPU that another library could "
    "read it from. Copy the tensor to host memory first: tensor.cpu()."
)


# ---- torch.UntypedStorage, as torch/csrc/Storage.cpp and StorageMethods.cpp have it with CUDA


def _new(cls: type[UntypedStorage], *args: Any, device: Any = None, **options: Any) -> UntypedStorage:
    if isinstance(device, (str, int, torch.device)) and torch.device(device).type == "cuda" and not options:
        torch.cuda._lazy_init()
        with torch.cuda.device(device):
            return torch._C.StorageBase.__new__(cls, *args, allocator=_C._allocator_address())  # type: ignore[call-arg]
    if device is not None:
        options["device"] = device
    return torch._C.StorageBase.__new__(cls, *args, **options)


def _resize_(self: UntypedStorage, size: int) -> UntypedStorage:
    if self.device.type != "cuda" or not isinstance(size, int) or size < 0:
        return torch._C.StorageBase.resize_(self, size)  # type: ignore[attr-defined]
    _C._resize_storage(self, size)
    return self


# ---- Sharing: torch.multiprocessing sends the eight values of _share_cuda_()
#
# The values are this device's own, at the positions of CUDA's values. The handle of CUDA's reference counter is
# replaced by the device, the number of the message, and the handle of the memory that has the message's slot. The
# counter's offset is replaced by the slot's index (csrc/runtime/OpenRegSharing.h). No event is sent, because
# _share_cuda_() waits for the stream.


def _share_cuda_(self: UntypedStorage) -> tuple[Any, ...]:
    device, memory, offset, size, slots, slot, number = _C._share_storage(self, _reductions._receivers())
    counter = device.to_bytes(8, "little") + number.to_bytes(8, "little") + slots
    return device, memory or None, size, offset, counter, slot, b"", False


def _from_counter(counter: bytes, slot: int, memory: bytes = b"", offset: int = 0, size: int = 0) -> tuple[Any, ...]:
    device, number = (int.from_bytes(counter[start : start + 8], "little") for start in (0, 8))
    return device, memory, offset, size, counter[16:], slot, number


def _new_shared_cuda(
    cls: type[UntypedStorage],
    device: int,
    memory: bytes,
    size: int,
    offset: int,
    counter: bytes,
    slot: int,
    event: bytes,
    must_wait: bool,
) -> UntypedStorage:
    return _C._open_storage(_from_counter(counter, slot, memory, offset, size))


def _release_ipc_counter_cuda(cls: type[UntypedStorage], counter: bytes, slot: int) -> None:
    _C._release_storage(_from_counter(counter, slot))


# ---- DLPack and other interfaces that hand out addresses


def _closed(to_dlpack: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(to_dlpack)
    def call(*args: Any, **options: Any) -> Any:
        return _C._close_capsule(to_dlpack(*args, **options))

    return call


_to_dlpack = _closed(torch._C._to_dlpack)
_to_dlpack_versioned = _closed(torch._C._to_dlpack_versioned)


_torch_from_dlpack = torch._C._from_dlpack


def _from_dlpack(capsule: Any) -> torch.Tensor:
    return _torch_from_dlpack(_C._open_capsule(capsule))


def dlpack(original: Callable[..., Any], self: torch.Tensor, **options: Any) -> Any:
    # A caller that passes a stream is a library that uses a GPU, or torch.from_dlpack().
    if (
        options.get("stream", -1) not in (None, -1)
        and self.device.type == "cuda"
        and not sys._getframe(2).f_globals.get("__name__", "").startswith("torch.")
    ):
        raise BufferError(NOT_FOR_OTHERS)
    return original(self, **options)


class _CudaArrayInterface(property):
    """Raises AttributeError for a tensor of the device, so that hasattr() is False.

    Libraries then treat the tensor as a CPU tensor. For CPU and sparse tensors, PyTorch's own property answers.
    """

    def __get__(self, tensor: Any, owner: type | None = None) -> Any:
        if tensor is not None and tensor.is_cuda and not tensor.is_sparse:
            raise AttributeError(NOT_FOR_OTHERS)
        return super().__get__(tensor, owner)


def install() -> None:
    """Installs the parts that are no attributes of torch._C: types written in C, and the registry of pickling."""
    for tensor_type in torch._tensor_classes:
        # torch.cuda.FloatTensor and similar types: every build has them, but in a CPU build they make no tensors.
        if tensor_type.is_cuda:
            _C._enable_constructor(tensor_type)
    # This attribute holds C functions, which give any library a tensor's address. Libraries that do not find it call
    # __dlpack__(), which can refuse.
    if "__dlpack_c_exchange_api__" in vars(torch.Tensor):
        del torch.Tensor.__dlpack_c_exchange_api__
    _reductions.install()


SUPPLIED: dict[str, Any] = {
    "_cuda_ipc_collect": _reductions.ipc_collect,
    "_to_dlpack": _to_dlpack,
    "_to_dlpack_versioned": _to_dlpack_versioned,
    "_from_dlpack": _from_dlpack,
    "_set_default_tensor_type": _C._set_default_tensor_type,
}

# Rows of _upstream.py.
new = staticmethod(_new)
new_shared_cuda = classmethod(_new_shared_cuda)
release_ipc_counter_cuda = classmethod(_release_ipc_counter_cuda)
cuda_array_interface = _CudaArrayInterface(torch.Tensor.__cuda_array_interface__.fget)  # type: ignore[attr-defined]
