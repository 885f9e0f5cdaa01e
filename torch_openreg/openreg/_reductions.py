"""How generators are copied and pickled, and how tensors travel in ``torch.multiprocessing``: by handle, as CUDA's.

A tensor put into a queue, or passed to a spawned process, has the same memory there. Who sends it waits for the current
stream, may let go of the tensor at once, and must not end before the other process has opened it. From then on the
memory stays, also (unlike CUDA's) when the sender ends.
"""

from __future__ import annotations

import copyreg
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from torch_openreg import _C

__all__ = ["ipc_collect"]


def install() -> None:
    """Tells Python's pickling of them. Objects of other devices are left to PyTorch."""
    copyreg.pickle(torch.Generator, _reduce_generator)
    # Tensors of every layout, parameters and typed storages are made of these, and PyTorch reduces them.
    ForkingPickler.register(torch.UntypedStorage, _reduce_storage)


# LITERALINCLUDE START: GENERATOR PICKLE
def _reduce_generator(generator: torch.Generator) -> tuple[Any, ...]:
    """What copying and pickling a generator stores. Without it both end in a SystemError for one of the device:
    PyTorch's own asks every generator but the CPU's for its offset, which a Mersenne twister does not have.
    """
    if generator.device.type != "openreg":
        return generator.__reduce__()
    return torch.Generator, (generator.device,), (generator.initial_seed(), None, generator.get_state())


# LITERALINCLUDE END: GENERATOR PICKLE


# LITERALINCLUDE START: SHARED STORAGE REDUCTION
def _reduce_storage(storage: torch.UntypedStorage) -> tuple[Any, ...]:
    if storage.device.type != "openreg":
        return reductions.reduce_storage(storage)
    return _rebuild_storage, _C._share_storage(storage)


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


def ipc_collect() -> None:
    """Frees memory that other processes received and have let go of. As ``torch.cuda.ipc_collect``.

    This happens by itself when a tensor is sent, and before the device is out of memory.
    """
    _C._collect_shared()
