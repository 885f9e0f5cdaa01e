"""Kernels in Triton's interpreter, on device memory. The functions at the end are the wrappers of _upstream.py.

A kernel gets the addresses of its tensors, and computes with addresses as on a GPU. Each of its loads and stores comes
here: the addresses must lie in the kernel's tensors, and become addresses at which the host reaches the same bytes.
"""

from __future__ import annotations

import atexit
import copy
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from torch_openreg._identity import device_type
from torch_openreg.simulator import _bindings

READ, WRITE = 1, 2
_VERBS = {READ: "reads", WRITE: "writes", READ | WRITE: "updates"}

# (address, bytes of an element, elements, bytes from one to the next, READ or WRITE)
Row = tuple[int, int, int, int, int]

_log = logging.getLogger("torch_openreg.triton")


class _Memory:
    """The bytes from ``begin`` to ``end``, which a kernel may access. ``name``: the argument that brings them."""

    def __init__(self, begin: int, size: int, name: str, tells: bool) -> None:
        self.begin, self.end, self.name = begin, begin + size, name
        self.to_host = _bindings._kernel_address(begin) - begin
        # For each byte, whether it was read before this kernel wrote it, and whether the kernel wrote it.
        self.read, self.written = np.zeros((2, size if tells else 0), dtype=bool)

    def note(self, offsets: Any, size: int, access: int) -> None:
        for at in (offsets + byte for byte in range(size)):
            if access & READ:
                self.read[at] |= ~self.written[at]
            if access & WRITE:
                self.written[at] = True

    def rows(self) -> Iterator[Row]:
        for flags, access in ((self.read, READ), (self.written, WRITE)):
            edges = np.flatnonzero(np.diff(flags, prepend=False, append=False))
            starts, sizes = edges[::2], edges[1::2] - edges[::2]
            steps = np.diff(starts)
            if len(starts) > 1 and (sizes == sizes[0]).all() and (steps == steps[0]).all():
                yield self.begin + int(starts[0]), int(sizes[0]), len(starts), int(steps[0]), access
            else:
                for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                    yield self.begin + start, size, 1, size, access


class _Kernel:
    """A kernel that runs. ``tells``: the sanitizer wants to know what the kernel reads and writes.

    ``rehearses``: the kernel is interpreted only to know that, and writes nothing.
    """

    def __init__(self, name: str, storages: list[tuple[int, int, str]], tells: bool, rehearses: bool) -> None:
        self.name, self.tells, self.rehearses = name, tells, rehearses
        self.takes_addresses = False  # it has made a pointer of an integer
        self.memories = [_Memory(*storage, tells) for storage in storages]

    def host_addresses(self, pointers: Any, mask: Any, size: int, access: int) -> Any:
        """Where the host reaches the elements of ``size`` bytes at ``pointers``. Where ``mask`` is False: anywhere."""
        addresses = pointers.astype(np.int64)
        pending = np.broadcast_to(True if mask is None else mask, addresses.shape)
        to_host = np.zeros_like(addresses)
        while pending.any():
            memory = self._memory_at(int(addresses[pending].min()), size, access)
            within = pending & (addresses >= memory.begin) & (addresses + size <= memory.end)
            if self.tells:
                memory.note(addresses[within] - memory.begin, size, access)
            to_host[within] = memory.to_host
            pending = pending & ~within
        return np.asarray(addresses + to_host).astype(np.uint64)

    def _memory_at(self, address: int, size: int, access: int) -> _Memory:
        for memory in self.memories:
            if memory.begin <= address and address + size <= memory.end:
                return memory
        if self.takes_addresses:
            begin, length = _bindings._allocation_around(address)
            if begin <= address and address + size <= begin + length:
                # The allocation holds tensors that the kernel does not know, so its accesses are not told.
                return _Memory(begin, length, "", self.tells)
        nearest = min(self.memories, key=lambda each: max(each.begin - address, address - each.end))
        where = (
            f"{nearest.begin - address} bytes before the begin"
            if address < nearest.begin
            else f"{address + size - nearest.end} bytes past the end"
        )
        raise IndexError(
            f"the Triton kernel {self.name} {_VERBS[access]} {size} bytes outside of its tensors, {where} of the "
            f"{nearest.end - nearest.begin} bytes of {nearest.name!r}, at {_line_of_the_kernel()}"
        )

    def rows(self) -> list[Row]:
        return [row for memory in self.memories for row in memory.rows()]


def _line_of_the_kernel() -> str:
    """The innermost line that is neither Triton's nor of this package."""
    import triton  # type: ignore[import-not-found]

    libraries = (os.path.dirname(triton.__file__) + os.sep, str(Path(__file__).parents[2]) + os.sep)
    frame: Any = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(libraries):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_of_this_thread = threading.local()


def _running() -> _Kernel | None:
    return getattr(_of_this_thread, "kernel", None)


def _tensors(name: str, value: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in an argument of a kernel: a tensor, a tuple, or an object of Triton's around one of these."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, tuple):
        for each in value:
            yield from _tensors(name, each)
    elif type(value).__module__.startswith("triton.") and hasattr(value, "base"):
        yield from _tensors(name, value.base)


class _Address:
    """What a kernel gets in the place of a tensor. A graph keeps it, and does not keep the tensor's memory alive."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.dtype, self._address = tensor.dtype, tensor.data_ptr()

    def data_ptr(self) -> int:
        return self._address


def _addresses(value: Any) -> Any:
    """An argument of a kernel, with an `_Address` in the place of each tensor that `_tensors` finds."""
    if isinstance(value, torch.Tensor):
        return _Address(value)
    if isinstance(value, tuple):
        made = [_addresses(each) for each in value]
        return type(value)(*made) if hasattr(value, "_fields") else tuple(made)
    if type(value).__module__.startswith("triton.") and hasattr(value, "base"):
        changed = copy.copy(value)
        changed.base = _addresses(value.base)
        return changed
    return value


_interpreter_lock = (
    threading.RLock()
)  # Triton's interpreter has one state for all threads, and a replay may have its own


@functools.cache
def _synchronize_at_exit() -> None:
    """Lets replays end while Python can still interpret their kernels."""

    def synchronize(pid: int = os.getpid()) -> None:
        if os.getpid() == pid:
            for device in range(torch.accelerator.device_count()):
                torch.accelerator.synchronize(device)

    atexit.register(synchronize)


@torch._disable_dynamo
def execute(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """Wraps GridExecutor.__call__(): the kernel enters the kernel scope. Hooks run before, because they launch too."""
    named = [*zip(self.arg_names, args, strict=False), *kwargs.items()]
    tensors = [each for name, value in named for each in _tensors(name, value)]
    devices = {tensor.device for _, tensor in tensors}
    if not any(device.type == device_type for device in devices):
        return original(self, *args, **kwargs)
    if any(torch._subclasses.fake_tensor.is_fake(tensor) for _, tensor in tensors):
        raise NotImplementedError(
            f"The Triton kernel {self.fn.__name__} cannot be traced while Triton's interpreter runs it: make the operator "
            "with torch.library.custom_op and register_fake, and not with torch.library.triton_op."
        )
    for name, tensor in tensors:
        if tensor.device.type != device_type:
            raise ValueError(f"Pointer argument {name!r} cannot be accessed from Triton (cpu tensor?)")
    hooks, self.pre_run_hooks = self.pre_run_hooks, []
    for hook in hooks:
        hook(*args, **{name: value for name, value in kwargs.items() if name in self.arg_names})

    # Of two arguments that share a storage, the first one gives the name.
    unique = {tensor.untyped_storage().data_ptr(): (name, tensor) for name, tensor in reversed(tensors)}
    storages = [(at, tensor.untyped_storage().nbytes(), name) for at, (name, tensor) in unique.items()]
    arguments = tuple(_addresses(value) for value in args), {name: _addresses(value) for name, value in kwargs.items()}

    def compute(tells: bool, rehearses: bool) -> list[Row]:
        kernel = _Kernel(self.fn.__name__, storages, tells, rehearses)
        with _interpreter_lock:
            before, _of_this_thread.kernel = _running(), kernel
            try:
                original(self, *arguments[0], **arguments[1])
            finally:
                _of_this_thread.kernel = before
        return kernel.rows()

    whole = [(at, size, 1, size, READ | WRITE) for at, size, _ in storages if size]
    if _bindings._run_interpreted(tensors[0][1].device.index, self.fn.__name__, whole, compute):
        _synchronize_at_exit()
    return None


def operands(original: Callable[..., Any], self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Wraps GridExecutor._init_args_hst(), which copies the tensors to the host."""
    return (args, kwargs) if _running() else original(self, args, kwargs)


def copy_back(original: Callable[..., None], self: Any, *args: Any) -> None:
    """Wraps GridExecutor._restore_args_dev(), which copies the tensors back."""
    if not _running():
        original(self, *args)


def _on_host(pointers: Any, mask: Any, size: int, access: int) -> Any:
    kernel = _running()
    return kernel.host_addresses(pointers, mask, size, access) if kernel else pointers


def _rehearses() -> bool:
    kernel = _running()
    return kernel is not None and kernel.rehearses


def load(original: Any, pointers: Any, mask: Any, other: Any, dtype: Any) -> Any:
    return original(_on_host(pointers, mask, dtype.itemsize, READ), mask, other, dtype)


def store(original: Any, pointers: Any, value: Any, mask: Any) -> Any:
    addresses = _on_host(pointers, mask, value.dtype.itemsize, WRITE)
    return None if _rehearses() else original(addresses, value, mask)


def atomic_rmw(original: Any, operation: Any, pointers: Any, value: Any, mask: Any, *rest: Any) -> Any:
    addresses = _on_host(pointers, mask, value.dtype.itemsize, READ | WRITE)
    # A rehearsed kernel gets each lock that it waits for.
    return np.zeros_like(value) if _rehearses() else original(operation, addresses, value, mask, *rest)


def atomic_cas(original: Any, pointers: Any, compare: Any, value: Any, *rest: Any) -> Any:
    addresses = _on_host(pointers, None, value.dtype.itemsize, READ | WRITE)
    return compare if _rehearses() else original(addresses, compare, value, *rest)


def integer_to_pointer(original: Any, self: Any, *args: Any) -> Any:
    """Wraps InterpreterBuilder.create_int_to_ptr()."""
    if kernel := _running():
        kernel.takes_addresses = True
    return original(self, *args)


def first_configuration(original: Any, self: Any, *args: Any, config: Any, **meta: Any) -> Any:
    """Wraps Autotuner._bench(): each configuration takes the same time, so the first one is the fastest."""
    from triton import knobs

    if not knobs.runtime.interpret:
        return original(self, *args, config=config, **meta)
    _log_choice(self.base_fn.__name__, len(self.configs))
    return [0.0, 0.0, 0.0]


_logged: set[str] = set()


def _log_choice(name: str, count: int) -> None:
    if name not in _logged:
        _logged.add(name)
        _log.warning(
            "Triton's autotune takes the first of %d configurations of %s: times of the interpreter say nothing about "
            "a GPU",
            count,
            name,
        )
