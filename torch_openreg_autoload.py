"""The entry point of torch_openreg in the group ``torch.backends``, which ``import torch`` calls.

The entry point is a separate module. PyTorch imports the entry point's module, and this import fails if another thread
is importing the same module and waits for torch. A thread that imports torch_openreg waits for torch, so the
entry point must not be in torch_openreg.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from types import FrameType, ModuleType


def _autoload() -> ModuleType | None:
    """Loads the backend, after all other installed backends.

    Returns ``torch.openreg``. Returns None if TORCH_OPENREG_AUTOLOAD=0, or if other backends have to be loaded first.
    """
    if os.environ.get("TORCH_OPENREG_AUTOLOAD") == "0":
        return None
    if getattr(sys.modules["torch"].__spec__, "_initializing", False) and not _is_last(_backends()):
        _load_last()
        return None
    return _load()


def _backends() -> Iterable[EntryPoint]:
    """The entry points in the order in which PyTorch calls them.

    To find entry points takes milliseconds, because the metadata of every installed distribution is read. PyTorch has
    just done this, and its list is a local variable of the function that calls us.
    """
    frame: FrameType | None = sys._getframe()
    while frame and (frame.f_code.co_name, frame.f_globals.get("__name__")) != ("_import_device_backends", "torch"):
        frame = frame.f_back
    points = frame and frame.f_locals.get("backend_extensions")
    return points or entry_points(group="torch.backends")  # another PyTorch may have another name for the variable


def _is_last(points: Iterable[EntryPoint]) -> bool:
    order = [point.value.partition(":")[0] for point in points]
    return order[-1:] in ([__name__], [])


def _load() -> ModuleType | None:
    # torch_openreg may be half imported, because its import, in this thread or another one, may import torch.
    try:
        import torch_openreg

        load: Callable[[], ModuleType | None] = torch_openreg._loader.load
    except RuntimeError:
        # importlib's deadlock error: another thread has just begun to import torch_openreg, and waits for torch.
        if "torch_openreg" not in sys.modules:
            raise
        load = sys.modules["torch_openreg"]._loader.load
    except Exception as error:
        if os.environ.get("TORCH_OPENREG_AUTOLOAD") == "strict":
            raise
        # Another package of this name was imported, or a Python file of the package is missing or cut. So the package
        # cannot explain the failure at the first use.
        other = ""
        with contextlib.suppress(Exception):  # _which.py may be missing or cut, too
            other = runpy.run_path(os.path.join(os.path.dirname(__file__), "torch_openreg", "_which.py"))["told"]()
        warnings.warn(
            'The device "openreg" is not available: torch_openreg cannot be imported '
            f"({type(error).__name__}: {error}). "
            + (other or "Install torch_openreg again, or remove it with `pip uninstall torch_openreg`."),
            stacklevel=2,
        )
        return None
    return load()


def _load_last() -> None:
    """Loads the backend after PyTorch has called the last entry point.

    PrivateUse1 has one owner. A backend that finds another owner raises or aborts within `import torch`, so this
    backend is loaded after the others. After the last entry point, PyTorch calls _init_logs(); the load happens just
    before.
    """
    from torch import _logging

    init_logs = _logging._init_logs

    def load_and_init_logs() -> None:
        _logging._init_logs = init_logs
        _load()
        init_logs()

    _logging._init_logs = load_and_init_logs  # type: ignore[assignment]
