"""How generators are copied and pickled, and how tensors travel in ``torch.multiprocessing``: by handle, as CUDA's.

A tensor put into a queue, or passed to a spawned process, has the same memory there. Who sends it waits for the current
stream, may let go of the tensor at once, and must not end before the other process has opened it. From then on the
memory stays, also (unlike CUDA's) when the sender ends.
"""

from __future__ import annotations

import copyreg
import multiprocessing.process
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_openreg import _C
from torch_openreg._loader import device_type

__all__ = ["ipc_collect"]


def install() -> None:
    """Tells Python's pickling of them. Objects of other devices are left to PyTorch."""
    copyreg.pickle(torch.Generator, _reduce_generator)
    if device_type == "openreg":  # PyTorch knows how CUDA tensors travel: torch_openreg/_cuda/_storage.py
        # Tensors of every layout, parameters and typed storages are made of these, and PyTorch reduces them.
        ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


# LITERALINCLUDE START: GENERATOR PICKLE
def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    """What copying and pickling a generator stores. Without it both end in a SystemError for one of the device:
    PyTorch's own asks every generator but the CPU's for its offset, which a Mersenne twister does not have.
    """
    if generator.device.type != device_type:
        return generator.__reduce__()
    return torch.Generator, (generator.device,), (generator.initial_seed(), None, generator.get_state())


# LITERALINCLUDE END: GENERATOR PICKLE


# LITERALINCLUDE START: SHARED STORAGE REDUCTION
def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != device_type:
        return reductions.reduce_storage(storage)
    return _rebuild_storage, _C._share_storage(storage, _receivers())


def _rebuild_storage(*shared: Any) -> torch.UntypedStorage:
    device, memory, offset, size, *_ = shared
    key = (device, memory, offset)
    storage = reductions.storage_from_cache(torch.UntypedStorage, key) if size else None
    if storage is None:
        storage = _C._open_storage(shared)
        reductions.shared_cache[key] = reductions.StorageWeakRef(storage)
    else:
        _C._release_storage(shared)
    return storage


# LITERALINCLUDE END: SHARED STORAGE REDUCTION


# LITERALINCLUDE START: RECEIVERS
def _receivers() -> list[int] | None:
    """The processes that could open what is sent now; None if there is none that multiprocessing knows."""
    parent = multiprocessing.parent_process()
    processes = _children() + ([parent.pid] if parent and parent.pid else [])
    # While a process is spawned, its arguments are sent to it. It has no id yet; ipc_collect() will see it as a child.
    return processes or (None if get_spawning_popen() is None else [])


def _children() -> list[int]:
    # Not active_children(): it also waits for those that have ended, which another thread may be doing.
    children: set[Any] = multiprocessing.process._children  # type: ignore[attr-defined]
    return [child.pid for child in tuple(children) if child.pid]


# LITERALINCLUDE END: RECEIVERS


def ipc_collect() -> None:
    """Frees memory that was sent, and that no other process uses any more. As ``torch.cuda.ipc_collect``.

    That is memory whose receivers have let go of it or have ended. Memory that nobody has received is freed too, if no
    process is left that could receive it: neither the parent, nor a child of ``multiprocessing`` that ran when the
    memory was sent or that runs now. A message that arrives after that raises RuntimeError when it is opened.

    Sending a tensor, and running out of memory, frees what receivers do not use any more; memory that nobody has
    received is freed by this function only.
    """
    _C._collect_shared(_children())
