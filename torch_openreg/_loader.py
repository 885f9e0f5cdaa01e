"""Loads the backend, in named phases. If a phase fails, the exception is kept, and not raised into ``import torch``.

Only with TORCH_OPENREG_AUTOLOAD=strict is the exception raised at once.

Rules:
  - At its top, this module imports only `_build`, `_environment`, `_identity` and modules that torch has imported
    already: each further module would make `import torch` slower for every program.
  - All checks that need no library run before a library is opened. A library for another
    PyTorch version, or a second owner of PrivateUse1, ends in an abort that no Python code can catch.
  - load() may be called twice, from two threads, and within the `import torch` that it started itself.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import sys
import threading
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from operator import attrgetter
from types import ModuleType
from typing import Any

from torch_openreg import _environment
from torch_openreg._build import check_build, check_libraries
from torch_openreg._environment import modules_of_parts
from torch_openreg._identity import asked_type, device_type, identity

_lock = threading.RLock()
_started = False


def load() -> ModuleType | None:
    """Runs the phases once. Returns the device's module, or a module that explains why there is no device.

    Returns None if torch cannot be imported. With TORCH_OPENREG_AUTOLOAD=strict, raises a failure instead.
    """
    global _started
    try:
        # Not under _lock: a thread within `import torch` holds Python's lock of torch, and then takes _lock. The
        # opposite order in another thread would be a deadlock.
        import torch
    except Exception as error:
        if _strict():
            raise
        from torch_openreg import _failure

        _failure.failure = error
        return None
    with _lock:
        # If this module is executed a second time (after a reload), the device is attached already.
        if not _started and not _is_ours(getattr(torch, "openreg", None)) and not hasattr(torch._C, "_openreg"):
            _started = True
            module, _, name = identity.phases.partition(":")
            for phase in getattr(importlib.import_module(module), name):
                try:
                    phase()
                except Exception as error:
                    from torch_openreg import _failure

                    _failure.failure = failure = _failure.explain(phase, error)
                    # `from torch_openreg import openreg` then gives the stand-in, as torch.openreg does.
                    setattr(sys.modules["torch_openreg"], "openreg", _failure.stand_in(failure))  # noqa: B010
                    if _strict():
                        raise failure from error
                    if asked_type:
                        # A program that uses another type would otherwise learn only that PyTorch has no such device.
                        _failure.warn(str(failure))
                    break
    return getattr(torch, "openreg", None) or sys.modules["torch_openreg"].openreg


def run_as_a_tool() -> bool:
    """Whether this process is ``torch-openreg COMMAND`` or ``python -m torch_openreg COMMAND``.

    If so, the command imports torch when it needs torch. The doctor must report even if that import hangs or aborts.
    """
    # While Python looks for the module to run, and imports its package, sys.argv[0] is "-m" instead of the program.
    module = sys.orig_argv[-len(sys.argv) :][:1] if sys.argv[:1] == ["-m"] else []
    return module == ["torch_openreg"] or os.path.basename(sys.argv[0] if sys.argv else "") == "torch-openreg"


LAZY = ("cmake_prefix_path", "include_paths", "library_paths", "openreg")


def lazy_attribute(name: str) -> Any:
    """``__getattr__`` of the package torch_openreg: what only programs need that compile something against it."""
    if name == "__version__" or name in LAZY[:-1]:  # load() sets the attribute openreg
        from torch_openreg import _paths

        return getattr(_paths, name)
    raise AttributeError(f"module 'torch_openreg' has no attribute {name!r}")


def _strict() -> bool:
    return os.environ.get("TORCH_OPENREG_AUTOLOAD") == "strict"


def _is_ours(module: object) -> bool:
    return isinstance(module, ModuleType) and module.__name__ in ("torch_openreg.openreg", "torch.openreg")


def check_platform() -> None:
    """Checks that the platform is Linux."""
    if sys.platform != "linux":
        raise OSError(f"torch_openreg runs on Linux only, and this is {sys.platform!r}: use it in a container.")


def check_environment() -> None:
    """Checks the environment variables of the package. Raises ValueError for a value that the package does not know."""
    _environment.check()
    value = os.environ.get("TORCH_OPENREG_FALLBACK") or "silent"
    if value.split(",")[0].strip() not in ("silent", "warn", "error"):
        raise ValueError(
            f"TORCH_OPENREG_FALLBACK is {value!r}. Set it to silent (the default), warn or error, which operators to "
            "allow may follow (error,aten::sort.stable,_foreach_*), or unset it."
        )


def check_owner() -> None:
    """Checks that nobody has taken PrivateUse1 or the name torch.openreg. A process has one owner of PrivateUse1."""
    import torch

    name = torch._C._get_privateuse1_backend_name()
    # A kernel for PrivateUse1 shows that there is a backend, even if it has not renamed the device type (yet).
    if name not in ("privateuseone", "openreg") or torch._C._dispatch_has_kernel_for_dispatch_key(
        "aten::empty.memory_format", "PrivateUse1"
    ):
        from torch_openreg import _failure

        raise RuntimeError(
            f"PyTorch has one PrivateUse1 device in a process, and the backend {_failure.describe_owner(name)} has "
            "taken it. Uninstall one of the two, keep them in separate environments, or leave this one out with "
            "TORCH_OPENREG_AUTOLOAD=0."
        )
    if hasattr(torch, "openreg"):
        raise RuntimeError(f"torch.openreg exists already: {torch.openreg!r}. Leave it to torch_openreg to set it.")


def open_libraries() -> None:
    """Opens the shared libraries; their static initialisers register the kernels, the allocators and the guard."""
    from torch_openreg import _C  # noqa: F401


def claim_name() -> None:
    """Renames PrivateUse1 to "openreg". After this call, autograd and torch.accelerator see an accelerator."""
    import torch

    torch.utils.rename_privateuse1_backend("openreg")


class _Submodules:
    """Finder and loader of the submodules of ``torch_openreg.openreg`` under names such as ``torch.openreg.memory``.

    Python's own finder would load a submodule a second time under this name, with separate classes and state.
    """

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if not name.startswith("torch.openreg.") or not importlib.util.find_spec(self._home(name)):
            return None
        return ModuleSpec(name, self)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._home(spec.name))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = module.__spec__.loader_state  # type: ignore[union-attr]

    @staticmethod
    def _home(name: str) -> str:
        return name.replace("torch.", "torch_openreg.", 1)


class _WhenImported:
    """Finder that calls ``then(module)`` after the import of ``name``, or now if ``name`` is imported already."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name, self._then = name, then
        if name in sys.modules:
            then(sys.modules[name])
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        others = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (each.find_spec(name, path, target) for each in others)), None)
        if spec is None or spec.loader is None:
            return None  # somebody asks whether the module exists
        execute = spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            if self in sys.meta_path:  # stays there until an import: a program may only ask for the spec before
                sys.meta_path.remove(self)
                self._then(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def when_imported(rows: Iterable[tuple[str, str]]) -> None:
    """For each row, calls the function on the right when PyTorch imports the module on the left, with that module."""

    def call(path: str, module: ModuleType) -> None:
        home, _, name = path.partition(":")
        getattr(importlib.import_module(home), name)(module)

    for name, path in rows:
        _WhenImported(name, functools.partial(call, path))


COMPILER = (
    ("torch._dynamo.device_interface", "torch_openreg._dynamo:register"),
    ("torch._dynamo.device_interface", "torch_openreg._dynamo:register_rng_state"),
    ("torch._dynamo", "torch_openreg._dynamo:make_traceable"),
    ("torch._dynamo.trace_rules", "torch_openreg._dynamo:leave_out"),
    ("torch._dynamo.variables.optimizer", "torch_openreg._dynamo:make_capturable"),
    ("torch._inductor.codegen.common", "torch_openreg._dynamo:refuse_default_backend"),
)


def compiler_rows() -> tuple[tuple[str, str], ...]:
    """COMPILER, and the rows of sub-packages that have a compiler for the device, in a file _compiler.py."""
    return COMPILER + tuple(row for module in modules_of_parts("_compiler") for row in module.COMPILER)


def attach_compiler() -> None:
    """Registers the device with dynamo and inductor, the parts of torch.compile, when their modules are imported."""
    when_imported(compiler_rows())


def attach_dtensor() -> None:
    """Registers how DTensors draw random numbers and shard attention, when torch.distributed.tensor is imported."""
    when_imported(
        [
            ("torch.distributed.tensor._random", "torch_openreg._dtensor:register"),
            ("torch.distributed.tensor", "torch_openreg._dtensor:register_attention"),
        ]
    )


def attach_module() -> None:
    """Makes torch.openreg the device's module."""
    import torch

    from torch_openreg import openreg

    sys.meta_path.insert(0, _Submodules())
    torch._register_device_module("openreg", openreg)


def add_methods() -> None:
    """Adds methods such as Tensor.openreg() and is_openreg, and repairs PyTorch's own methods and pickling."""
    import torch

    import torch_openreg.openreg._reductions as _reductions  # `from` would ask __getattr__ first
    from torch_openreg import _upstream

    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _upstream.apply(_upstream.AT_START)
    _reductions.install()
    _reductions.install_storages()
    add_profiler_names()


def add_profiler_names() -> None:
    """Adds the device's times and memory to PyTorch's tables under its name: ``sort_by="self_openreg_time_total"``.

    PyTorch's own names contain ``device``. For CUDA and XPU, PyTorch also accepts ``cuda`` and ``xpu`` there.
    """
    from torch.autograd.profiler_util import FunctionEvent, FunctionEventAvg

    for owner in (FunctionEvent, FunctionEventAvg):
        for name in (
            "device_memory_usage",
            "device_time",
            "device_time_total",
            "self_device_memory_usage",
            "self_device_time_total",
        ):
            setattr(owner, name.replace("device", "openreg"), property(attrgetter(name)))


def register_distributed() -> None:
    """Registers the backend "occl" with torch.distributed. Its classes are made with the first process group."""
    import torch.distributed as dist

    if not dist.is_available():
        return

    def create(*arguments: Any) -> Any:
        from torch_openreg import distributed

        return distributed.create(*arguments)

    dist.Backend.register_backend("occl", create, extended_api=True, devices=[device_type])
    # PyTorch 2.13 keeps the names here in capital letters, but looks for the default backend of "cpu:gloo,openreg:occl"
    # in small letters. Without a default backend, the end of each such group prints a warning.
    plugins = dist.Backend._plugins
    dist.Backend._plugins = {"occl": plugins["OCCL"], **plugins}
    when_imported([("torch.testing._internal.distributed.fake_pg", "torch_openreg._loader:add_to_fake_group")])


def add_to_fake_group(module: ModuleType) -> None:
    """Adds the device to PyTorch's process group ``fake``, which PyTorch registers for the devices that it knows."""
    from torch.distributed import Backend

    devices = Backend.backend_capability[Backend.FAKE]
    if device_type not in devices:
        Backend.register_backend(
            Backend.FAKE, module._create_fake_pg, extended_api=True, devices=[*devices, device_type]
        )


# LITERALINCLUDE START: PHASES
PHASES: tuple[Callable[[], None], ...] = (
    check_platform,
    check_environment,
    check_build,
    check_libraries,
    check_owner,
    open_libraries,
    claim_name,
    attach_module,
    attach_compiler,
    attach_dtensor,
    add_methods,
    register_distributed,
)
# LITERALINCLUDE END: PHASES
