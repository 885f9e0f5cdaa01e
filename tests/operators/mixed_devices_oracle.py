"""PyTorch's own answers to operands on two devices, as JSON: {operator: {placement: "ok" or the error}}.

Run in a process without any backend, in which the meta device stands for an accelerator: the checks of TensorIterator
and of structured kernels are in their meta functions, which are the same for CUDA and for the meta device. Python's
meta registrations, which would replace these functions, are left out.
"""

from __future__ import annotations

import itertools
import json
import sys
import types
import warnings
from collections.abc import Iterable

if __name__ == "__main__":
    sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")

import torch

# The place of a tensor. D: on the device. S: on the device, 0-dim. C: on the CPU. s: on the CPU, 0-dim.
PLACES = "DSCs"


def overload(name: str) -> torch._ops.OpOverload:
    """``"add.Tensor"`` -> ``torch.ops.aten.add.Tensor``."""
    base, _, which = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), which or "default")


def is_tensor(argument: torch.Argument) -> bool:
    return str(argument.type) in ("Tensor", "Optional[Tensor]")


def tensor(place: str, device: str, dtype: torch.dtype) -> torch.Tensor:
    value = True if dtype is torch.bool else 0.5 if dtype.is_floating_point else 1
    return torch.full(() if place in "Ss" else (3,), value, dtype=dtype, device=device if place in "DS" else "cpu")


OTHERS = {"number": 1, "float": 1.0, "int": 0, "bool": False, "Optional[str]": "floor", "Optional[number]": 1}
OTHERS |= {"Optional[int]": 0, "List[int]": [0], "Optional[List[int]]": [0]}
MASKS = ("condition", "mask")


def call(op: torch._ops.OpOverload, places: Iterable[str], device: str, dtype: torch.dtype) -> str:
    """Calls ``op`` with tensors at ``places``: "ok", or the type and the first line of the error."""
    positional, named, place = [], {}, iter(places)
    for argument in op._schema.arguments:
        if is_tensor(argument):
            of_dtype = torch.bool if argument.name in MASKS else torch.int64 if argument.name == "index" else dtype
            value = tensor(next(place), device, of_dtype)
            if argument.name == "index":
                value.zero_()
        elif argument.has_default_value():
            continue
        else:
            value = OTHERS[str(argument.type)]
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    try:
        op(*positional, **named)
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return "ok"


def dtype_of(op: torch._ops.OpOverload) -> torch.dtype | None:
    """The first dtype that the CPU's kernel takes."""
    places = "D" * sum(map(is_tensor, op._schema.arguments))
    return next((d for d in (torch.float32, torch.int64, torch.bool) if call(op, places, "cpu", d) == "ok"), None)


def outcomes(name: str, device: str) -> dict[str, str] | None:
    """What each placement of the tensors gives; None if no call of ``name`` was found that works."""
    op = overload(name)
    if any("Tensor" in str(a.type) and not is_tensor(a) for a in op._schema.arguments):
        return None
    try:
        dtype = dtype_of(op)
    except KeyError:
        return None
    count = sum(map(is_tensor, op._schema.arguments))
    if dtype is None or call(op, "D" * count, device, dtype) != "ok":
        return None
    placements = ("".join(p) for p in itertools.product(PLACES, repeat=count))
    return {p: call(op, p, device, dtype) for p in placements if set(p) & set("DS")}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps({name: outcomes(name, "meta") for name in sys.argv[1:]}))
