"""``torch.openreg``: the device's own module, as ``torch.cuda`` is CUDA's.

An argument ``device`` is an index, ``"openreg:1"``, a ``torch.device``, or None for the current device. An index
that no device has raises ``torch.AcceleratorError: The device index is out of range. It must be in [0, N), but got M.``
The shared libraries are loaded with this module. The device itself starts at its first use. As with CUDA, a child that
is forked after the start cannot use the device.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

if "torch_openreg._failure" in sys.modules:  # a start has failed. _C is not imported: its library may be damaged
    from torch_openreg import _failure

    if _failure.failure:
        raise _failure.failure.with_traceback(None)

from torch_openreg import _C, _environment
from torch_openreg._identity import device_type, is_still_chosen

from . import _utils as _utils  # torch.load calls a function of _utils
from ._utils import DeviceLike, _get_device_index, existing_device


def init() -> None:
    """Starts the device, which otherwise starts at its first use. A second call has no effect. As ``torch.cuda.init``.

    Raises RuntimeError in a child that was forked after the device started. Raises RuntimeError if an environment
    variable of the device has a wrong value.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Starts the device. PyTorch calls this function before its first use of the device."""
    global _initialized, _initializing
    _C._init()
    with _initialization_lock:
        if _initialized or _initializing:  # a queued call that uses the device calls this function again
            return
        _initializing = True
        if not is_still_chosen():
            from torch_openreg import _failure

            _failure.warn_of_other_type()
        try:
            for call, stack in _queued_calls:
                try:
                    call()
                except Exception as error:
                    raise DeferredOpenRegCallError(
                        f"OpenReg call failed lazily at initialization with error: {error}\n\n"
                        f"OpenReg call was originally invoked at:\n\n{''.join(stack)}"
                    ) from error
            _queued_calls.clear()
            _initialized = True
        finally:
            _initializing = False


_initialized = False
_initializing = False
_initialization_lock = threading.RLock()
_queued_calls: list[tuple[Callable[[], object], list[str]]] = []


def _lazy_call(callable: Callable[[], object], **kwargs: Any) -> None:
    """Calls ``callable()`` now if the device has started, else when it starts. As ``torch.cuda._lazy_call``.

    The arguments ``seed`` and ``seed_all`` are accepted and have no effect. They are not needed: queued calls run in
    the order in which they were queued, so the last seed decides.
    """
    with _initialization_lock:
        if is_initialized():
            callable()
        else:
            _queued_calls.append((callable, traceback.format_stack()))


class DeferredOpenRegCallError(Exception):
    """Raised when the device starts and a call that was queued until then fails.

    As ``torch.cuda.DeferredCudaCallError``.
    """


def is_initialized() -> bool:
    """Whether the device has started, and can be used in this process. As ``torch.cuda.is_initialized``."""
    return _initialized and not _is_in_bad_fork()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked after the device started, so that it cannot use the device."""
    return _C._isInBadFork()


def is_available() -> bool:
    """Whether there is a device. Does not start the device, and never raises. As ``torch.cuda.is_available``."""
    return device_count() > 0


def device_count() -> int:
    """The number of visible devices: OPENREG_DEVICE_COUNT without those that OPENREG_VISIBLE_DEVICES hides.

    If OPENREG_DEVICE_COUNT is not set, there are 2 devices, or as many as the devices stand for.

    Returns 0, and warns once, if an environment variable has a wrong value. Does not start the device. As
    ``torch.cuda.device_count``.
    """
    return _C._get_device_count()


def current_device() -> int:
    """The index of the calling thread's current device. As ``torch.cuda.current_device``."""
    return _C._get_device()


def set_device(device: DeviceLike) -> None:
    """Makes ``device`` the calling thread's current device. A negative index changes nothing.

    As ``torch.cuda.set_device``. ``with torch.openreg.device(...)`` is usually better, because it restores the previous
    device.
    """
    index = _get_device_index(device)
    if index >= 0:
        _C._set_device(index)


class device:
    """Context manager that makes ``device`` the calling thread's current device, and then restores the previous device.

    None and negative indices change nothing. As ``torch.cuda.device``.
    """

    def __init__(self, device: DeviceLike | None) -> None:
        self.idx = _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _C._exchangeDevice(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        _C._exchangeDevice(self.prev_idx)


class device_of(device):
    """Context manager that makes the device of a tensor or storage the current device. As ``torch.cuda.device_of``.

    Changes nothing if ``obj`` is on another type of device.
    """

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.device.type == device_type else -1)


def get_device_properties(device: DeviceLike | None = None) -> _OpenRegDeviceProperties:
    """The properties of a device. Default: the current device. As ``torch.cuda.get_device_properties``.

    ``name`` and ``total_memory`` (in bytes) are the device's own. The other numbers, such as ``multi_processor_count``,
    ``major`` and ``minor``, are those of an NVIDIA A100, unless another accelerator was chosen. Starts the device.
    """
    _lazy_init()
    return _C._get_device_properties(existing_device(device))


def get_device_name(device: DeviceLike | None = None) -> str:
    """The device's name. Default: the current device. As ``torch.cuda.get_device_name``."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """The compute capability: the major and the minor number. Default: the current device.

    As ``torch.cuda.get_device_capability``.
    """
    properties = get_device_properties(device)
    return properties.major, properties.minor


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether ``device`` can read the memory of ``peer_device``. Any two different devices can.

    Not if an accelerator was chosen whose devices cannot. As ``torch.cuda.can_device_access_peer``.
    """
    _lazy_init()
    return _C._can_device_access_peer(existing_device(device), existing_device(peer_device))


def synchronize(device: DeviceLike | None = None) -> None:
    """Waits for all work of all streams of a device (default: the current device). As ``torch.cuda.synchronize``.

    If a kernel or a copy has failed and no call has raised the failure yet, this call raises it.
    """
    _lazy_init()
    torch.accelerator.synchronize(existing_device(device))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device supports bfloat16. As ``torch.cuda.is_bf16_supported``.

    With ``including_emulation`` (default True) the answer is True, because the CPU's kernels support it. Without
    ``including_emulation`` the call starts the device, and the answer is that of the GPU that the current device
    represents: True from compute capability 8 on.
    """
    return including_emulation or get_device_capability()[0] >= 8


def _get_generator(device: DeviceLike | None = None) -> torch.Generator:
    """A device's default generator. PyTorch calls this function, as it calls ``torch.cuda._get_generator``."""
    return _C._get_default_generator(existing_device(device))


def utilization(device: DeviceLike | None = None) -> int:
    """The percent of time in which a device runs kernels: 0 to 100. Default: the current device.

    As ``torch.cuda.utilization``. The call takes 1/6 s, in which it watches the work of all threads of this process. It
    does not wait for that work. NVML answers for the past sample period, which is between 1/6 s and 1 s long.
    """
    return _utilization(device)[0]


def memory_usage(device: DeviceLike | None = None) -> int:
    """The percent of time in which kernels, copies or fills read or write a device's memory: 0 to 100.

    Default: the current device. As ``torch.cuda.memory_usage``. The call takes 1/6 s, as ``utilization`` does.
    """
    return _utilization(device)[1]


def _utilization(device: DeviceLike | None) -> tuple[int, int]:
    _lazy_init()
    compute, memory = _C._measure_utilization(existing_device(device), 1 / 6)
    return round(100 * compute), round(100 * memory)


_OWN = [
    "DeferredOpenRegCallError",
    "can_device_access_peer",
    "current_device",
    "default_generators",
    "device",
    "device_count",
    "device_of",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "init",
    "is_available",
    "is_bf16_supported",
    "is_initialized",
    "memory_usage",
    "set_device",
    "synchronize",
    "utilization",
]


if TYPE_CHECKING:
    from torch_openreg._C import _OpenRegDeviceProperties

    from ._names import *  # noqa: F403

    default_generators: tuple[torch.Generator, ...]
else:

    def __getattr__(name: str) -> Any:
        from ._names import HOMES, SUBMODULES  # most programs need only what is defined above

        # torch.cuda fills this tuple when the device starts. The generators of this device exist before its start.
        if name == "default_generators":
            return tuple(_C._get_default_generator(index) for index in range(device_count()))
        if name == "_gpu_trace":  # PyTorch's tracer looks for its registries of callbacks here
            return importlib.import_module("torch.cuda._gpu_trace")
        if name == "__all__":
            return [*_OWN, *(each for each in (*HOMES, *SUBMODULES) if not each.startswith("_"))]
        if name in SUBMODULES:
            return importlib.import_module(f".{name}", __name__)
        if name in HOMES:
            value = getattr(__getattr__(HOMES[name]), name)
            globals()[name] = value
            return value
        raise AttributeError(f"module 'torch.openreg' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *sys.modules[__name__].__all__})


# Further submodules lie in sub-packages that may be deleted.
__path__ += [  # noqa: F405
    os.path.join(os.path.dirname(_environment.__file__), part, "openreg") for part in _environment.parts_with("openreg")
]


def _obey_variables() -> None:
    """A variable that a submodule reads is obeyed when the submodule is imported.

    A process that is forked after the import of this module calls this function again, if it has other variables.
    """
    for name in _environment.submodules_of_variables() if _environment.any_is_set() else ():
        importlib.import_module(f".{name}", __name__)


_obey_variables()
