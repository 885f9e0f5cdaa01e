"""What PyTorch's dispatch table says about an operator, and a call of it with made-up arguments."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor


def registrations(operator: str) -> dict[str, str]:
    """The kernels that were registered for an operator: dispatch key -> source file, and "boxed" for a boxed kernel."""
    found = {}
    for line in torch._C._dispatch_dump(operator).splitlines():
        match = re.match(r"(\w+)(?:\[alias\])?: registered at \S*?(\w+)\.\w+:\d+(?: as [\w ]+)? :: (.*)", line)
        if match:
            key, source, kernel = match.groups()
            found.setdefault(key, source + (" boxed" if kernel.endswith("[ boxed ]") else ""))
    return found


def operators_of(source: str) -> list[str]:
    """All aten operators whose kernel for the device is registered in csrc/aten/`source`.cpp."""
    names = (name for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return sorted(name for name in names if registrations(name).get("PrivateUse1") == source)


def overload(name: str) -> torch._ops.OpOverload:
    """The operator of a name as the dispatcher writes it, "aten::add.Tensor"."""
    operator, _, kind = name.removeprefix("aten::").partition(".")
    return getattr(getattr(torch.ops.aten, operator), kind or "default")


def other_arguments(operator: torch._ops.OpOverload) -> dict[str, Any]:
    """Values for the arguments that are not tensors."""
    values: dict[str, Any] = {"approximate": "none", "rounding_mode": "floor", "is_result": False}
    for argument in operator._schema.arguments:
        if str(argument.type) in ("number", "Optional[number]"):
            values[argument.name] = 0.5
        elif str(argument.type) == "bool":
            values.setdefault(argument.name, False)
    return {a.name: values[a.name] for a in operator._schema.arguments if a.name in values}


def call(operator: torch._ops.OpOverload, tensors: list[Tensor], **others: Any) -> Any:
    """Calls an operator with these tensors, and with `others` or made-up values for the other arguments."""
    given = iter(tensors)
    others = other_arguments(operator) | {
        a.name: others[a.name] for a in operator._schema.arguments if a.name in others
    }
    keywords = {
        a.name: others[a.name] if a.name in others else next(given)
        for a in operator._schema.arguments
        if a.name in others or "Tensor" in str(a.type)
    }
    return operator(**keywords)


def tensor_arguments(operator: torch._ops.OpOverload) -> int:
    """The number of tensors that an operator takes, including the outputs that it writes."""
    return sum("Tensor" in str(a.type) for a in operator._schema.arguments)


def positive(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    """Random numbers between 0.25 and 1, in the domain of every function that is tested with them."""
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 0.75 + 0.25).to(dtype)
