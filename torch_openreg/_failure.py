"""What stands in for ``torch.openreg`` when the backend could not start."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn


class BackendLoadError(RuntimeError, AttributeError):
    """Raised by every use of a device whose backend could not start; ``__cause__`` is the original exception.

    An AttributeError too, because PyTorch asks ``hasattr(torch.openreg, ...)`` on behalf of programs that use the CPU only.
    """


def explain(phase: Callable[[], None], error: Exception) -> BackendLoadError:
    """The sentence that users see: the phase that failed, and why."""
    failure = BackendLoadError(
        f'The device "openreg" is not available: torch_openreg failed in {phase.__name__}: {type(error).__name__}: {error}'
    )
    failure.__cause__ = error
    return failure


class _FailedModule(ModuleType):
    """``torch.openreg`` after a failure: no device is there, and whoever asks for more is told why."""

    def __init__(self, failure: BackendLoadError) -> None:
        super().__init__("torch.openreg", "The openreg backend, which could not start.")
        self._failure = failure

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # Python's own questions: inspect, copy, pickle
            raise AttributeError(name)
        self._lazy_init()

    def _lazy_init(self) -> NoReturn:
        raise self._failure

    # What PyTorch calls on behalf of programs that use the CPU only.
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


def stand_in(failure: BackendLoadError) -> None:
    """Lets ``device="openreg"`` reach the failure, without taking anything from a program that does not use it."""
    import torch

    if torch._C._get_privateuse1_backend_name() == "privateuseone" and torch._C._get_accelerator().type == "cpu":
        # Claimed only where no other accelerator is: the owner of the name becomes torch.accelerator's device.
        torch.utils.rename_privateuse1_backend("openreg")
    if not hasattr(torch, "openreg"):
        module = _FailedModule(failure)
        torch.openreg = sys.modules["torch.openreg"] = module  # type: ignore[attr-defined]
