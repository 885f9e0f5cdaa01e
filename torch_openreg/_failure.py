"""The stand-in for ``torch.openreg`` if the backend could not start."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.metadata import entry_points, packages_distributions, version
from types import ModuleType
from typing import Any, NoReturn

from torch_openreg import _which
from torch_openreg._environment import device_type


class BackendLoadError(RuntimeError, AttributeError):
    """Raised by uses of a device whose backend could not start. ``__cause__`` is the original exception.

    The class is also an AttributeError, because PyTorch calls ``hasattr(torch.openreg, ...)`` in programs that use the
    CPU only.
    """


def explain(phase: Callable[[], None], error: Exception) -> BackendLoadError:
    """Returns the exception whose message users see: which step of the start (phase) failed, why, and what to do."""
    # The message of a failed check says what to do, so it needs no remedy.
    remedy = "" if phase.__name__.startswith("check_") else ". Install torch_openreg again, built for this PyTorch"
    # The word distinguishes this device from a real GPU, which also has the type "cuda".
    simulated = "simulated " if device_type == "cuda" else ""
    other = f" {_which.told()}".rstrip()
    failure = BackendLoadError(
        f'The {simulated}device "{device_type}" is not available: torch_openreg failed in {phase.__name__}: '
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

    If the device type is "cuda", the function only returns the module.
    """
    import torch

    module = _FailedModule(failure)
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    # TORCH_OPENREG_AS=cuda: the simulated device has the type "cuda" and does not use PrivateUse1. So PrivateUse1 stays
    # free for another backend. For device="cuda", PyTorch raises its own error, or uses a real GPU if it has one.
    if device_type == "cuda":
        return module
    # LEFT OUT OF A NEW BACKEND END
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
