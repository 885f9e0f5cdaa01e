"""The device: its tensors, its kernels, and what it registers.

A tensor of the device has no memory of its own. It holds ``values``, which stand for the memory of the device. Here
``values`` is a CPU tensor, and the kernels are the CPU's. A real device would keep a handle and call its driver.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_flatten, tree_map_only
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "ledger"

calls: Counter[str] = Counter()
"""How often each operator ran on the device. The two factories are not counted. A copy from the CPU or into a tensor
counts as ``copy_``, and ``x.cpu()`` as ``_to_copy``."""


class LedgerTensor(torch.Tensor):
    """A tensor of the device. Programs never name this class: they write ``device="ledger"``."""

    values: torch.Tensor

    # Functions of torch become operators, which __torch_dispatch__ gets. So no function is replaced here.
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, values: torch.Tensor) -> LedgerTensor:
        tensor = torch.Tensor._make_wrapper_subclass(
            cls,
            values.shape,
            strides=values.stride(),
            storage_offset=values.storage_offset(),
            dtype=values.dtype,
            device=torch.device(NAME, 0),
        )
        # If `values` is lazily conjugated or negated, the wrapper is marked so too. PyTorch then resolves the wrapper
        # before a kernel runs.
        torch._C._set_conj(tensor, values.is_conj())
        torch._C._set_neg(tensor, values.is_neg())
        tensor.values = values
        return tensor

    def __repr__(self, *, tensor_contents: str | None = None) -> str:
        return f"{repr(self.values.detach())[:-1]}, device='{self.device}')"

    @classmethod
    def __torch_dispatch__(cls, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs each operator that has a tensor of the device as an argument. Autograd has recorded the call before."""
        # From now on the calling thread runs every backward itself. PyTorch's thread for the device releases Python
        # objects after backward has returned. If the interpreter ends meanwhile, Python ends that thread inside a
        # destructor, and the process is aborted.
        torch._C._set_multithreading_enabled(False)
        kwargs = dict(kwargs or {})
        if operator is torch.ops.aten.copy_.default:
            return copy(*args)
        target = kwargs.get("device")
        if target is not None:
            kwargs["device"] = "cpu"
        elsewhere = target is not None and torch.device(target).type != NAME
        check_devices(operator, (args, kwargs))
        calls[str(operator)] += 1
        values = operator(*unwrap(args), **unwrap(kwargs))
        if elsewhere:
            return values
        result = tree_map_only(torch.Tensor, LedgerTensor, values)
        # Autograd expects that an in-place operator returns the same tensor, and that a view has the same storage.
        return return_and_correct_aliasing(operator, args, kwargs, result)


def unwrap(arguments: Any) -> Any:
    return tree_map_only(LedgerTensor, lambda tensor: tensor.values, arguments)


def check_devices(operator: Any, arguments: Any) -> None:
    """Raises for a tensor of another device, unless it has no dimensions. CUDA's rules differ for some operators."""
    for tensor in tree_flatten(arguments)[0]:
        if isinstance(tensor, torch.Tensor) and not isinstance(tensor, LedgerTensor) and tensor.dim() > 0:
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and "
                f"{tensor.device}! ({operator})"
            )


def copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``target.copy_(source)`` in all directions. Always blocks."""
    calls["aten.copy_.default"] += 1
    unwrap(target).copy_(unwrap(source))
    return target


def empty(
    size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, **_: Any
) -> Any:
    return LedgerTensor(torch.empty(size, dtype=dtype))


def empty_strided(size: Any, stride: Any, dtype: Any = None, layout: Any = None, device: Any = None, **_: Any) -> Any:
    return LedgerTensor(torch.empty_strided(size, stride, dtype=dtype))


class Module:
    """``torch.ledger``."""

    calls = calls

    @staticmethod
    def is_available() -> bool:
        return True

    is_initialized = is_available

    @staticmethod
    def device_count() -> int:
        return 1

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """Does nothing, because random numbers come from the CPU's generator."""


_setup_privateuseone_for_python_backend(NAME, Module())
# The dispatcher finds operators without a tensor among their arguments through the device's dispatch key.
library = torch.library.Library("aten", "IMPL")
library.impl("empty.memory_format", empty, "PrivateUse1")
library.impl("empty_strided", empty_strided, "PrivateUse1")
# torch.tensor(data, device=...) copies without calling LedgerTensor.__torch_dispatch__().
library.impl("_copy_from", lambda source, target, non_blocking=False: copy(target, source), "PrivateUse1")
