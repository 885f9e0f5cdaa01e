"""Operators in Python, for a device: `python examples/custom_operators.py`.

The steps are those of C++ (csrc/aten/OpenRegExtra.cpp). A kernel in Python is composed of other operators. So this way
is for operators that PyTorch lacks, and not for the kernels of a device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


# The schema comes from the annotations. The kernel is for the device. For a tensor of another device type, PyTorch
# raises NotImplementedError.
@torch.library.custom_op("openreg_example::soft_clip", mutates_args=(), device_types="openreg")
def soft_clip(x: Tensor, limit: float) -> Tensor:
    """A small `x` stays nearly the same. The result is never further from 0 than `limit`."""
    return torch.tanh(x / limit) * limit


# The shape of the result, for torch.compile, torch.export and FakeTensor, which run no kernel while they trace.
@soft_clip.register_fake
def _(x: Tensor, limit: float) -> Tensor:
    return torch.empty_like(x)


def save_result(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    """Keeps the values that the derivative needs: tanh' = 1 - tanh**2."""
    ctx.save_for_backward(output)
    ctx.limit = inputs[1]


def derivative(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """One gradient for each argument. A number has no gradient."""
    (output,) = ctx.saved_tensors
    return grad * (1 - (output / ctx.limit) ** 2), None


soft_clip.register_autograd(derivative, setup_context=save_result)

soft_clip.register_autocast("openreg", torch.float32)


@soft_clip.register_vmap
def _(info: Any, dims: tuple[int | None, None], x: Tensor, limit: float) -> tuple[Tensor, int | None]:
    return soft_clip(x, limit), dims[0]  # the operator is elementwise, so the new dimension is like the others


# Another way to add an operator, also to a namespace that another package has defined: `DEF` would claim the namespace,
# and a fragment adds to it.
library = torch.library.Library("openreg_example", "FRAGMENT")
library.define("halve(Tensor x) -> Tensor")
library.impl("halve", lambda x: x * 0.5, "CompositeImplicitAutograd")


def main() -> None:
    """Uses every registration once."""
    x = torch.linspace(-3, 3, 7, device="openreg", requires_grad=True)
    y = soft_clip(x, 2.0)
    y.sum().backward()
    print("result  ", y.tolist())
    print("gradient", x.grad.tolist())  # type: ignore[union-attr]
    # opcheck's test of the autograd registration refuses devices that PyTorch does not know.
    tests = ("test_schema", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(soft_clip, (x.detach().requires_grad_(), 2.0), test_utils=tests)

    with torch.autocast("openreg"):
        print("autocast", soft_clip(x.half(), 2.0).dtype)
    print("vmap    ", torch.equal(torch.vmap(soft_clip, (0, None))(x.detach(), 2.0), y.detach()))
    print("halve   ", torch.ops.openreg_example.halve(x.detach()).tolist())
    try:
        soft_clip(torch.ones(2), 2.0)
    except NotImplementedError as error:
        print("on a CPU tensor:", str(error).partition(".")[0])


if __name__ == "__main__":
    main()
