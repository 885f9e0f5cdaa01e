"""Brings the backend up, in named phases. A failing phase is kept, never raised into ``import torch``.

Rules:
  - Nothing here imports more than torch has already imported: `import torch` pays for it in every program.
  - Whatever can be known without opening a library is checked before one is opened: a library of another PyTorch version,
    or a second owner of PrivateUse1, ends in an abort that no Python code can catch.
  - load() may be called twice, from two threads, and from inside the `import torch` that it started itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import ModuleType

_lock = threading.RLock()
_started = False
failure: Exception | None = None
"""What went wrong, with the original exception as its cause; None after a successful start."""


def load() -> ModuleType | None:
    """Runs the phases, once. Returns ``torch.openreg``: the device's module, or one that explains why there is none."""
    global _started, failure
    try:
        # Outside our lock: a thread that is inside `import torch`, and holds Python's lock of it, comes here wanting ours.
        import torch
    except Exception as error:
        failure = error
        return None
    with _lock:
        if not _started:
            _started = True
            for phase in PHASES:
                try:
                    phase()
                except Exception as error:
                    from torch_openreg import _failure

                    failure = _failure.explain(phase, error)
                    _failure.stand_in(failure)
                    if os.environ.get("TORCH_OPENREG_AUTOLOAD") == "strict":
                        raise failure from error
                    break
    return getattr(torch, "openreg", None)


def check_build() -> None:
    """This package is built, and for the PyTorch minor version that runs."""
    import torch

    try:
        from torch_openreg import _build_info
    except ImportError:
        raise ImportError(
            f"{os.path.dirname(__file__)} holds the sources of torch_openreg, not a built package. "
            "Leave that folder, or build in it with: pip install --no-build-isolation -e ."
        ) from None
    if torch.__version__.split(".")[:2] != _build_info.torch_version.split(".")[:2]:
        raise ImportError(
            f"torch_openreg {_build_info.version} was built for PyTorch {_build_info.torch_version}, and PyTorch "
            f"{torch.__version__} is running: a binary works with one minor version. Install the torch_openreg for this "
            "version, or rebuild it with: pip install --no-build-isolation --force-reinstall --no-deps <its sources>"
        )


def check_owner() -> None:
    """No other backend has taken PrivateUse1, of which a process has one."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    if name not in ("privateuseone", "openreg"):
        raise RuntimeError(
            f"PyTorch has one PrivateUse1 device in a process, and the backend {name!r} has taken it. Uninstall one of "
            "the two, keep them in separate environments, or leave this one out with TORCH_OPENREG_AUTOLOAD=0."
        )
    if hasattr(torch, "openreg"):
        raise RuntimeError(f"torch.openreg exists already: {torch.openreg!r}.")


def open_libraries() -> None:
    """Opens the shared libraries; their static initialisers register the kernels, the allocators and the guard."""
    from torch_openreg import _C  # noqa: F401


def claim_name() -> None:
    """PrivateUse1 becomes "openreg". From here on autograd and torch.accelerator see an accelerator."""
    import torch

    torch.utils.rename_privateuse1_backend("openreg")


def attach_module() -> None:
    """torch.openreg becomes the device's module."""
    import torch

    from torch_openreg import openreg

    torch._register_device_module("openreg", openreg)


def add_methods() -> None:
    """Tensor.openreg(), Module.openreg(), is_openreg and their like."""
    import torch

    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


PHASES: tuple[Callable[[], None], ...] = (
    check_build,
    check_owner,
    open_libraries,
    claim_name,
    attach_module,
    add_methods,
)
