"""The entry point of torch_openreg in the group ``torch.backends``: it can be imported while torch is half imported."""

import contextlib
import os
import runpy
import sys
import warnings
from types import ModuleType


def _autoload() -> ModuleType | None:
    """Loads the backend. ``import torch`` loads it after the last backend, because PrivateUse1 has one owner."""
    if (switch := os.environ.get("TORCH_OPENREG_AUTOLOAD")) == "0":
        return None
    if switch == "strict" or not getattr(sys.modules["torch"].__spec__, "_initializing", False):
        return _load(switch == "strict")
    from torch import _logging  # PyTorch calls _init_logs() after the last backend: see UPSTREAM.md

    def load_and_init_logs() -> None:
        _logging._init_logs = init_logs
        _load()
        init_logs()

    init_logs, _logging._init_logs = _logging._init_logs, load_and_init_logs  # type: ignore[assignment]
    return None


def _load(strict: bool = False) -> ModuleType | None:
    try:
        with contextlib.suppress(*[] if strict else [RuntimeError]):  # importlib's: another thread waits for torch
            import torch_openreg  # noqa: F401
        return sys.modules["torch_openreg"]._loader.load()
    except () if strict else Exception as error:  # noqa: B030
        remedy = "Install torch_openreg again, or remove it with `pip uninstall torch_openreg`."
        with contextlib.suppress(Exception):  # another package of this name may hide this one
            remedy = runpy.run_path(f"{os.path.dirname(__file__)}/torch_openreg/_which.py")["told"]() or remedy
        text = f'The device "openreg" is not available: torch_openreg cannot be imported ({type(error).__name__}: '
        warnings.warn(f"{text}{error}). {remedy}", stacklevel=2)
        return None
