"""The other process of tests/runtime/test_multiprocessing.py: does what it is asked, and keeps what it is sent."""

from __future__ import annotations

import gc
import pickle
import sys
import traceback
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

import torch_openreg._C

kept: dict[str, Any] = {}


def keep(name: str, thing: Any) -> None:
    kept[name] = thing


def drop(name: str) -> None:
    del kept[name]
    gc.collect()


def values(name: str, *path: Any) -> Any:
    thing = kept[name]
    for part in path:
        thing = thing[part]
    return thing.to_dense().tolist() if thing.layout is not torch.strided else thing.tolist()


def describe(name: str) -> tuple[Any, ...]:
    thing = kept[name]
    return type(thing).__name__, thing.dtype, str(thing.device), tuple(thing.shape), thing.requires_grad


def geometry(name: str) -> tuple[Any, ...]:
    thing = kept[name]
    return thing.stride(), thing.storage_offset(), thing.untyped_storage().nbytes()


def add(name: str, value: float) -> None:
    kept[name].detach().add_(value)


def resize(name: str) -> None:
    kept[name].resize_(1 << 20)


def same_storage(*names: str) -> bool:
    return len({kept[name].untyped_storage()._cdata for name in names}) == 1


def load(name: str, message: bytes) -> None:
    kept[name] = pickle.loads(message)


def open_storage(description: tuple[Any, ...]) -> None:
    kept["opened"] = torch_openreg._C._open_storage(description)


def release_storage(description: tuple[Any, ...]) -> None:
    torch_openreg._C._release_storage(description)


def send_and_drop(size: int) -> int:
    """Bytes that are still allocated after a tensor of `size` bytes was pickled for another process but not sent."""
    before = torch.accelerator.memory_allocated()
    ForkingPickler.dumps(torch.ones(size, dtype=torch.uint8, device="openreg"))
    torch.openreg.ipc_collect()
    return torch.accelerator.memory_allocated() - before


def memory() -> tuple[int, int]:
    free, total = torch.accelerator.get_memory_info()
    return torch.accelerator.memory_allocated(), total - free


def make(name: str, value: float) -> torch.Tensor:
    kept[name] = torch.full((4,), value, device="openreg")
    return kept[name]


def send_back(name: str) -> Any:
    return kept[name]


def serve(requests: Any, replies: Any) -> None:
    """Calls functions of this module: (name, arguments) arrives, (result, None) or (None, error) goes back."""
    for function, arguments in iter(requests.get, None):
        try:
            result = getattr(sys.modules[__name__], function)(*arguments)
            ForkingPickler.dumps(None if function == "make" else result)  # an error is raised here, not in a thread
            replies.put((result, None))
        except Exception as error:
            traceback.clear_frames(error.__traceback__)
            replies.put((None, f"{type(error).__name__}: {error}"))
        del function, arguments
