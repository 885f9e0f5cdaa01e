"""The legacy tensor types ``torch.openreg.FloatTensor`` and its like, as ``torch.cuda`` has them."""

from __future__ import annotations

from typing import Any

import torch


class _TensorType(type):
    """A name that makes tensors, and that tensors are instances of; no tensor has it as its class."""

    dtype: torch.dtype

    def __call__(cls, *args: Any) -> torch.Tensor:
        return torch.empty(0, dtype=cls.dtype, device="openreg").new(*args)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Tensor) and instance.type() == f"torch.openreg.{cls.__name__}"


def _tensor_type(name: str, dtype: torch.dtype) -> Any:
    doc = f"``{name}(*sizes)`` or ``{name}(data)``: a {dtype} tensor on the current device. As ``torch.cuda.{name}``."
    return _TensorType(name, (), {"__module__": "torch.openreg", "__doc__": doc, "dtype": dtype})


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
