"""What a user is told if the backend could not start, and the stand-in for ``torch.openreg``."""

from __future__ import annotations

import importlib
import os
import re
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import entry_points, packages_distributions, version
from types import ModuleType
from typing import Any, NoReturn

from torch_openreg import _which
from torch_openreg._identity import asked_type, identity

failure: Exception | None = None
"""The failure of the start; None before the start and after a success. Its ``__cause__`` is the phase's exception.

Only a start that fails imports this module. If torch itself cannot be imported, it is that import's exception.
"""


class BackendLoadError(RuntimeError, AttributeError):
    """Raised by uses of a device whose backend could not start. ``__cause__`` is the original exception.

    The class is also an AttributeError, because PyTorch calls ``hasattr(torch.openreg, ...)`` in programs that use the
    CPU only.
    """


def explain(phase: Callable[[], None], error: Exception) -> BackendLoadError:
    """Returns the exception whose message users see: which step of the start (phase) failed, why, and what to do."""
    # The message of a failed check says what to do, so it needs no remedy.
    remedy = "" if phase.__name__.startswith("check_") else ". Install torch_openreg again, built for this PyTorch"
    other = f" {_which.told()}".rstrip()
    failure = BackendLoadError(
        f'The {identity.kind} "{identity.type}" is not available: torch_openreg failed in {phase.__name__}: '
        f"{type(error).__name__}: {str(error).rstrip('.')}{remedy}.{other} `python -m torch_openreg doctor` says more."
    )
    failure.__cause__ = error
    return failure


def describe_owner(name: str) -> str:
    """The backend called ``name``, and its distribution if that is known."""
    import torch

    module = getattr(torch, name, None)
    package = str(getattr(module, "__name__", type(module).__module__)).partition(".")[0]
    backends = {re.split("[.:]", point.value)[0]: point.dist for point in entry_points(group="torch.backends")}
    if package in backends:
        names = {distribution.name for distribution in [backends[package]] if distribution}
    elif module is not None and package not in ("torch", "builtins"):
        names = set(packages_distributions().get(package, []))
    else:
        # The backend gave PyTorch no module of its own. So it may be any of the backends that are loaded.
        names = {d.name for p, d in backends.items() if d and p in sys.modules and p != "torch_openreg_autoload"}
    installed = " or ".join(f"{name} {version(name)}" for name in sorted(names))
    return f"{name!r} (from {installed})" if installed else repr(name)


class _FailedModule(ModuleType):
    """``torch.openreg`` after a failure: ``is_available()`` is False and ``device_count()`` is 0.

    Attributes that are not defined below raise BackendLoadError, but a name that begins with two underscores raises
    AttributeError.
    """

    def __init__(self, failure: BackendLoadError) -> None:
        super().__init__("torch.openreg", "The openreg backend, which could not start.")
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python itself looks up such names, in inspect, copy and pickle
            raise AttributeError(name)
        self._lazy_init()

    def _lazy_init(self) -> NoReturn:
        # A new exception each time, because a raised exception keeps the frames of every place that raised it.
        raise BackendLoadError(*self._failure.args) from self._failure.__cause__

    def _deserialize(self, storage: Any, location: str) -> None:
        """Called by torch.load. PyTorch's own error for a device that is not available does not have the reason."""
        if location == "openreg" or location.startswith("openreg:"):
            self._lazy_init()

    # PyTorch calls these functions in programs that use the CPU only.
    @staticmethod
    def is_available() -> bool:
        return False

    @staticmethod
    def device_count() -> int:
        return 0

    @staticmethod
    def is_initialized() -> bool:
        return False

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        return None


def stand_in(failure: BackendLoadError) -> ModuleType:
    """Makes ``device="openreg"`` raise the failure, if the name "openreg" is free and PyTorch has no other accelerator.

    Programs that do not use the device see no change. Returns the module that explains the failure. The module becomes
    ``torch.openreg``, unless another package has set ``torch.openreg``.

    If the device is not PrivateUse1, the function only returns the module.
    """
    import torch

    module = _FailedModule(failure)
    # PrivateUse1 then stays free for another backend. For a device of its own types, PyTorch raises its own error.
    if identity.dispatch_key != "PrivateUse1":
        return module
    torch.serialization.register_package(0, lambda storage: None, module._deserialize)
    if getattr(torch, "openreg", None) is not sys.modules.get("torch_openreg.openreg"):
        return module  # torch.openreg is set, and not by this package: another package has set it
    torch.openreg = sys.modules["torch.openreg"] = module  # type: ignore[attr-defined]
    if torch._C._get_privateuse1_backend_name() == "privateuseone" and torch._C._get_accelerator().type == "cpu":
        # Claim the name only if PyTorch has no other accelerator: the owner of the name becomes the accelerator.
        torch.utils.rename_privateuse1_backend("openreg")
    if torch._C._get_privateuse1_backend_name() == "openreg":
        # torch.accelerator calls _accelerator_getAccelerator. With None, torch.accelerator behaves as if no backend was
        # installed.
        torch._C._accelerator_getAccelerator = lambda: None  # type: ignore[assignment, return-value]
    return module


def warn(message: str) -> None:
    """Warns at the program's line: the innermost one outside of this package, its entry point, torch and importlib.

    `python -W error` must not make `import torch` fail, so the warning is then printed.
    """
    torch = os.path.dirname(str(sys.modules["torch"].__file__))
    # Where the type has a package that acts before torch, its finder runs the import.
    early = str(getattr(sys.modules.get(f"torch_openreg_{identity.type}"), "__file__", importlib.__file__))
    skipped = (os.path.dirname(__file__), os.path.join(torch, ""), str(importlib.__file__), early, "<frozen importlib")
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        level += not frame.f_code.co_filename.startswith("<")  # warn() does not count the frames of the import system
        frame = frame.f_back
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=level)
    except RuntimeWarning:
        print(f"RuntimeWarning: {message}", file=sys.stderr)


_was_told = False


def warn_of_other_type() -> None:
    """Warns, once, that TORCH_OPENREG_AS was changed after the start. For the first use of the device."""
    global _was_told
    if not _was_told:
        _was_told = True
        now = os.environ.get("TORCH_OPENREG_AS", "")
        warn(
            f"TORCH_OPENREG_AS was changed from {asked_type!r} to {now!r} after `import torch`, and this process keeps "
            f'the device "{identity.type}". Set it before Python starts, or use '
            "`python -m torch_openreg run --as ...`."
        )
