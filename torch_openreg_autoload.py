"""What ``import torch`` calls: the ``torch.backends`` entry point of torch_openreg.

A module of its own, because PyTorch loads the entry point's module with an import that fails if another thread is in
the middle of importing it, which for torch_openreg means: waiting for torch.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from types import FrameType, ModuleType


def _autoload() -> ModuleType | None:
    """Brings the backend up, after all other installed ones.

    Returns ``torch.openreg``, or None if TORCH_OPENREG_AUTOLOAD=0 leaves it out or other backends come first.
    """
    if os.environ.get("TORCH_OPENREG_AUTOLOAD") == "0":
        return None
    if getattr(sys.modules["torch"].__spec__, "_initializing", False) and not _is_last(_backends()):
        _load_last()
        return None
    return _load()


def _backends() -> Iterable[EntryPoint]:
    """The entry points in the order in which PyTorch calls them.

    To find them, the metadata of every installed distribution is read, which takes milliseconds. PyTorch has just done
    that: its list is a variable of the function that calls us.
    """
    frame: FrameType | None = sys._getframe()
    while frame and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("_import_device_backends", "torch"):
        frame = frame.f_back
    points = frame and frame.f_locals.get("backend_extensions")
    return points or entry_points(group="torch.backends")  # another PyTorch may call the variable otherwise


def _is_last(points: Iterable[EntryPoint]) -> bool:
    order = [point.value.partition(":")[0] for point in points]
    return order[-1:] in ([__name__], [])


def _load() -> ModuleType | None:
    # torch_openreg may be half imported, by the import that made this thread or another one import torch.
    try:
        import torch_openreg
    except RuntimeError:
        # importlib's deadlock error, if another thread has just begun to import it and waits for torch.
        if "torch_openreg" not in sys.modules:
            raise
        torch_openreg = sys.modules["torch_openreg"]
    return torch_openreg._loader.load()


def _load_last() -> None:
    """PrivateUse1 has one owner. A backend that finds it taken raises or aborts inside `import torch`; ours yields.

    The first thing that PyTorch does after calling the last backend is to read TORCH_LOGS: so do we.
    """
    from torch import _logging

    init_logs = _logging._init_logs

    def load_and_init_logs() -> None:
        _logging._init_logs = init_logs
        _load()
        init_logs()

    _logging._init_logs = load_and_init_logs  # type: ignore[assignment]
