"""Legacy types such as ``torch.openreg.FloatTensor`` and ``torch.openreg.FloatStorage``. As in ``torch.cuda``.

PyTorch has such types of its own for some types of devices: a tensor or storage is then an instance of both.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.storage import _LegacyStorage

from torch_openreg._identity import device_type

__all__ = [
    "BFloat16Storage",
    "BFloat16Tensor",
    "BoolStorage",
    "BoolTensor",
    "ByteStorage",
    "ByteTensor",
    "CharStorage",
    "CharTensor",
    "ComplexDoubleStorage",
    "ComplexFloatStorage",
    "DoubleStorage",
    "DoubleTensor",
    "FloatStorage",
    "FloatTensor",
    "HalfStorage",
    "HalfTensor",
    "IntStorage",
    "IntTensor",
    "LongStorage",
    "LongTensor",
    "ShortStorage",
    "ShortTensor",
]


class _TensorType(type):
    """A type that makes tensors. ``isinstance`` accepts the device's tensors of this dtype; their class is Tensor."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        return torch.empty(0, dtype=cls.dtype, device=device_type).new(*args)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.type() == f"torch.{device_type}.{cls.__name__}"


def _tensor_type(name: str, dtype: torch.dtype) -> Any:
    doc = f"``{name}(*sizes)`` or ``{name}(data)``: a {dtype} tensor on the current device. As ``torch.cuda.{name}``."
    return _TensorType(name, (), {"__module__": f"torch.{device_type}", "__doc__": doc, "dtype": dtype})


class _DeviceStorage(_LegacyStorage):
    """Refuses the functions that make a storage of host memory, with the error messages of ``torch.cuda``'s types."""

    @classmethod
    def from_buffer(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"from_buffer: Not available for {device_type.upper()} storage")

    @classmethod
    def _new_with_weak_ptr(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"_new_with_weak_ptr: Not available for {device_type.upper()} storage")

    @classmethod
    def _new_shared_filename(cls, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"_new_shared_filename: Not available for {device_type.upper()} storage")


def _storage_type(name: str, dtype: torch.dtype) -> Any:
    doc = f"``{name}(size)`` or ``{name}(data)``: a {dtype} storage on the current device. As ``torch.cuda.{name}``."
    # PyTorch reads the device from __module__. It reads _dtype to avoid the warning that typed storages are deprecated.
    attributes = {"__module__": f"torch.{device_type}", "__doc__": doc, "dtype": dtype, "_dtype": dtype}
    return types.new_class(name, (_DeviceStorage,), exec_body=lambda namespace: namespace.update(attributes))


BFloat16Tensor = _tensor_type("BFloat16Tensor", torch.bfloat16)
BoolTensor = _tensor_type("BoolTensor", torch.bool)
ByteTensor = _tensor_type("ByteTensor", torch.uint8)
CharTensor = _tensor_type("CharTensor", torch.int8)
DoubleTensor = _tensor_type("DoubleTensor", torch.float64)
FloatTensor = _tensor_type("FloatTensor", torch.float32)
HalfTensor = _tensor_type("HalfTensor", torch.float16)
IntTensor = _tensor_type("IntTensor", torch.int32)
LongTensor = _tensor_type("LongTensor", torch.int64)
ShortTensor = _tensor_type("ShortTensor", torch.int16)

BFloat16Storage = _storage_type("BFloat16Storage", torch.bfloat16)
BoolStorage = _storage_type("BoolStorage", torch.bool)
ByteStorage = _storage_type("ByteStorage", torch.uint8)
CharStorage = _storage_type("CharStorage", torch.int8)
ComplexDoubleStorage = _storage_type("ComplexDoubleStorage", torch.complex128)
ComplexFloatStorage = _storage_type("ComplexFloatStorage", torch.complex64)
DoubleStorage = _storage_type("DoubleStorage", torch.float64)
FloatStorage = _storage_type("FloatStorage", torch.float32)
HalfStorage = _storage_type("HalfStorage", torch.float16)
IntStorage = _storage_type("IntStorage", torch.int32)
LongStorage = _storage_type("LongStorage", torch.int64)
ShortStorage = _storage_type("ShortStorage", torch.int16)
