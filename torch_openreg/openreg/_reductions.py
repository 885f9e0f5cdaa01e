"""How generators are copied and pickled, and how tensors are sent by ``torch.multiprocessing``.

A tensor is sent by handle, as on CUDA: in the other process it has the same memory. The sender waits for its current
stream. It may release the tensor at once, but it must not end before the other process has opened the tensor. After
that the memory stays valid even if the sender ends. On CUDA the memory becomes invalid when the sender ends.
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
from torch_openreg._identity import device_type

__all__ = ["ipc_collect"]


def install() -> None:
    """Registers with Python's pickling how a generator travels. PyTorch pickles those of other devices."""
    copyreg.pickle(torch.Generator, _reduce_generator)


def install_storages() -> None:
    """Registers with Python's pickling how a storage travels. PyTorch sends storages of other devices."""
    # Tensors of every layout, parameters and typed storages contain untyped storages, and PyTorch reduces the rest.
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


# LITERALINCLUDE START: GENERATOR PICKLE
def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    """What a copy or a pickle of a generator stores.

    Without this function, copying and pickling raise a SystemError for a generator of the device. PyTorch's own
    function asks every generator except the CPU's for its offset, and a Mersenne twister has no offset.
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
    """The ids of the processes that could open a message that is sent now.

    None if multiprocessing knows no process: the receivers are then unknown, and the message is never given up.
    """
    parent = multiprocessing.parent_process()
    processes = _children() + ([parent.pid] if parent and parent.pid else [])
    # A process that is being spawned has no id yet while its arguments are sent. If there is no other process, the list
    # is empty. ipc_collect() will see the spawned process as a child.
    return processes or (None if get_spawning_popen() is None else [])


def _children() -> list[int]:
    # active_children() would also wait for children that have ended, and another thread may wait for them already.
    children: set[Any] = multiprocessing.process._children  # type: ignore[attr-defined]
    return [child.pid for child in tuple(children) if child.pid]


# LITERALINCLUDE END: RECEIVERS


def ipc_collect() -> None:
    """Frees memory that was sent to other processes and that no process uses any more. As ``torch.cuda.ipc_collect``.

    This is memory whose receivers have released it or have ended. Memory that nobody has received is freed too, if no
    process is left that could receive it: neither the parent, nor a child of ``multiprocessing`` that ran when the
    memory was sent or that runs now. If a message whose memory was freed arrives later, opening it raises RuntimeError.

    Sending a tensor and running out of memory also free memory that receivers do not use any more. Only this function
    frees memory that nobody has received.
    """
    _C._collect_shared(_children())
