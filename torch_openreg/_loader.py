"""Loads the backend, in named phases. If a phase fails, the exception is kept, and not raised into ``import torch``.

Only with TORCH_OPENREG_AUTOLOAD=strict is the exception raised at once.

Rules:
  - At its top, this module imports only `_environment` and modules that torch has imported already: each further module
    would make `import torch` slower for every program.
  - All checks that need no library run before a library is opened. A library for another
    PyTorch version, or a second owner of PrivateUse1, ends in an abort that no Python code can catch.
  - load() may be called twice, from two threads, and within the `import torch` that it started itself.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from types import ModuleType
from typing import Any

from torch_openreg import _environment
from torch_openreg._environment import asked_face, device_type

_lock = threading.RLock()
_started = False
REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps <its sources>"
DAMAGED = f": a full disk or an interrupted install may have cut it. Install torch_openreg again: {REBUILD}"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# LEFT OUT OF A NEW BACKEND START: the face cuda
_told = False  # whether a change of TORCH_OPENREG_AS was reported
OWN_NAME = 'unset TORCH_OPENREG_AS and use the device by its own name, "openreg".'

# LEFT OUT OF A NEW BACKEND END
failure: Exception | None = None
"""The failure of the start; None before the start and after a success. Its ``__cause__`` is the phase's exception."""


def load() -> ModuleType | None:
    """Runs the phases once. Returns the device's module, or a module that explains why there is no device.

    Returns None if torch cannot be imported. With TORCH_OPENREG_AUTOLOAD=strict, raises a failure instead.
    """
    global _started, failure
    try:
        # Not under _lock: a thread within `import torch` holds Python's lock of torch, and then takes _lock. The
        # opposite order in another thread would be a deadlock.
        import torch
    except Exception as error:
        if _strict():
            raise
        failure = error
        return None
    with _lock:
        # If this module is executed a second time (after a reload), the device is attached already.
        if not _started and not _is_ours(getattr(torch, "openreg", None)) and not hasattr(torch._C, "_openreg"):
            _started = True
            for phase in PHASES[device_type]:
                try:
                    phase()
                except Exception as error:
                    from torch_openreg import _failure

                    failure = _failure.explain(phase, error)
                    # `from torch_openreg import openreg` then gives the stand-in, as torch.openreg does.
                    setattr(sys.modules["torch_openreg"], "openreg", _failure.stand_in(failure))  # noqa: B010
                    if _strict():
                        raise failure from error
                    # LEFT OUT OF A NEW BACKEND START: the face cuda
                    if asked_face:
                        # A program that says "cuda" would otherwise learn only that PyTorch is not compiled with CUDA.
                        _warn(str(failure))
                    # LEFT OUT OF A NEW BACKEND END
                    break
    return getattr(torch, "openreg", None) or sys.modules["torch_openreg"].openreg


def run_as_a_tool() -> bool:
    """Whether this process is ``torch-openreg COMMAND`` or ``python -m torch_openreg COMMAND``.

    If so, the command imports torch when it needs torch. The doctor must report even if that import hangs or aborts.
    """
    # While Python looks for the module to run, and imports its package, sys.argv[0] is "-m" instead of the program.
    module = sys.orig_argv[-len(sys.argv) :][:1] if sys.argv[:1] == ["-m"] else []
    return module == ["torch_openreg"] or os.path.basename(sys.argv[0] if sys.argv else "") == "torch-openreg"


def cpu_build(version: str | None) -> str:
    """The command that installs a CPU build of this version of PyTorch, or of the newest version."""
    # Without "+cpu", pip would keep an installed build of that release with CUDA.
    wanted = f"torch=={version.partition('+')[0]}+cpu" if version else "torch"
    return f"pip install {wanted} --index-url {CPU_INDEX}"


def _strict() -> bool:
    return os.environ.get("TORCH_OPENREG_AUTOLOAD") == "strict"


# LEFT OUT OF A NEW BACKEND START: the face cuda
class PackageOfOneFace(ModuleType):
    """The class of the package torch_openreg. It warns at an import after TORCH_OPENREG_AS has changed.

    ``import torch`` has imported the package, so `import torch_openreg` executes none of its code. But each import of a
    module reads the module's ``__spec__``.
    """

    @property
    def __spec__(self) -> ModuleSpec | None:
        global _told
        spec: ModuleSpec | None = self.__dict__["__spec__"]
        now = os.environ.get("TORCH_OPENREG_AS", "")
        if (now or "openreg") != (asked_face or "openreg") and _started and not _told:
            _told = True
            _warn(
                f"TORCH_OPENREG_AS was changed from {asked_face!r} to {now!r} after `import torch`, and this process "
                f'keeps the device "{device_type}". Set it before Python starts, or use '
                "`python -m torch_openreg run --as ...`."
            )
        return spec

    @__spec__.setter
    def __spec__(self, spec: ModuleSpec | None) -> None:
        self.__dict__["__spec__"] = spec


sys.modules["torch_openreg"].__class__ = PackageOfOneFace


def _warn(message: str) -> None:
    """Warns at the program's line: the innermost one outside of this package, its entry point, torch and importlib.

    `python -W error` must not make `import torch` fail, so the warning is then printed.
    """
    torch = os.path.dirname(str(sys.modules["torch"].__file__))
    skipped = (os.path.dirname(__file__), os.path.join(torch, ""), str(importlib.__file__), "<frozen importlib")
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(skipped):
        level += not frame.f_code.co_filename.startswith("<")  # warn() does not count the frames of the import system
        frame = frame.f_back
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=level)
    except RuntimeWarning:
        print(f"RuntimeWarning: {message}", file=sys.stderr)


# LEFT OUT OF A NEW BACKEND END
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
    if program := os.environ.get("OPENREG_FAULTS", "").strip():
        from torch_openreg._faults import parse

        try:
            parse(program)
        except ValueError as error:
            raise ValueError(f"OPENREG_FAULTS cannot be obeyed. {error}") from None
    if model := os.environ.get("OPENREG_MODEL", "").strip():
        from torch_openreg._models import find_for_this_torch

        try:
            find_for_this_torch(model)
        except ValueError as error:
            raise ValueError(f"OPENREG_MODEL cannot be obeyed. {error}") from None


def builds() -> list[str]:
    """The minor versions of PyTorch for which this wheel has builds, oldest first; empty for a build from the sources.

    A wheel has a folder such as ``torch2.13`` with the libraries for each version (release/wheels.py), because pip
    cannot choose a wheel by the installed PyTorch. A build from the sources has its libraries in the package itself.
    """
    names = os.listdir(os.path.dirname(__file__))
    found = [name[5:] for name in names if name.startswith("torch") and name[5:6].isdigit()]
    return sorted(found, key=lambda minor: [int(number) for number in minor.split(".")])


def _minor_version(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _choose_build(folder: str) -> None:
    """Puts the build for this PyTorch in front of the package's path, if this is a wheel with such a build."""
    import torch

    path = sys.modules["torch_openreg"].__path__
    chosen = os.path.join(folder, f"torch{_minor_version(torch.__version__)}")
    if chosen not in path and os.path.isdir(chosen):
        path.insert(0, chosen)


def build_info() -> Any:
    """The module that CMake wrote into the built package. Raises ImportError if there is none for this PyTorch."""
    folder = os.path.dirname(__file__)
    if not os.path.isdir(folder):
        raise ImportError(
            f"{folder} lies in an archive, from which no shared library can be loaded. Unpack it, or install it with "
            "pip."
        )
    _choose_build(folder)
    try:
        from torch_openreg import _build_info

        _ = _build_info.library_sizes  # the last line of the file: a file that was cut does not have it
    except ImportError:
        if minors := builds():
            raise ImportError(_other_torch(minors)) from None
        raise ImportError(
            f"{folder} holds the sources of torch_openreg, not a built package. "
            "Leave that folder, or build in it with: pip install --no-build-isolation -e ."
        ) from None
    except Exception as error:
        raise ImportError(f"torch_openreg/_build_info.py is not what the build wrote{DAMAGED}") from error
    return _build_info


def _other_torch(minors: list[str], version: str = "") -> str:
    """The sentence for a PyTorch for which this package has no build."""
    import torch

    if not version:
        from importlib import metadata

        version = metadata.version("torch_openreg")
    built = " and ".join(filter(None, [", ".join(minors[:-1]), minors[-1]]))
    newest = f"torch=={_minor_version(minors[-1])}.*"
    return (
        f"torch_openreg {version} was built for PyTorch {built}, and PyTorch {torch.__version__} is running: a binary "
        f'works with one minor version. Install a PyTorch that it was built for (pip install "{newest}" --index-url '
        f"{CPU_INDEX}), or the torch_openreg for this version, or rebuild it: {REBUILD}"
    )


def check_build() -> None:
    """Checks that this package is built, and built for the minor version of PyTorch that runs."""
    import torch

    built = build_info()
    if _minor_version(torch.__version__) != _minor_version(built.torch_version):
        raise ImportError(_other_torch([built.torch_version], built.version))


def check_libraries() -> None:
    """Checks the sizes of the shared libraries. Opening a library that was cut ends the process with SIGBUS."""
    from torch_openreg import _build_info

    for name, size in _build_info.library_sizes.items():
        path = os.path.join(os.path.dirname(_build_info.__file__), name)
        found = f"has {os.path.getsize(path):,} bytes" if os.path.exists(path) else "is missing"
        if found != f"has {size:,} bytes":
            raise ImportError(f"{path} {found}, and the build recorded {size:,} bytes{DAMAGED}")


# LEFT OUT OF A NEW BACKEND START: the face cuda
def check_cuda() -> None:
    """Checks that this package was built with the device type cuda, and that the name "cuda" is free.

    The name is free in a CPU build of PyTorch.
    """
    import torch

    from torch_openreg import _build_info

    if "_C_cuda.so" not in _build_info.library_sizes:
        raise ImportError(
            f"this torch_openreg was built without the device type cuda. Install a build that has it, or {OWN_NAME}"
        )
    if torch._C._has_cuda:
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
        raise RuntimeError(
            f"PyTorch {torch.__version__} is a build with {built}, where the name cuda belongs to real GPUs. Install a "
            f"CPU build with `{cpu_build(torch.__version__)}`, or {OWN_NAME}"
        )


# LEFT OUT OF A NEW BACKEND END
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
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    if device_type == "cuda":
        _open_cuda_libraries()
    # LEFT OUT OF A NEW BACKEND END
    from torch_openreg import _C  # noqa: F401


# LEFT OUT OF A NEW BACKEND START: the face cuda
def _open_cuda_libraries() -> None:
    """Opens _C_cuda.so as the module torch_openreg._C, so that the Python code is the same for both types."""
    import torch_openreg

    path = os.path.join(os.path.dirname(build_info().__file__), "_C_cuda.so")
    loader = ExtensionFileLoader("torch_openreg._C", path)
    spec = importlib.util.spec_from_file_location("torch_openreg._C", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[spec.name] = torch_openreg._C = module


def check_hooks() -> None:
    """Checks that the opened library could give PyTorch the device's hooks (torch_openreg/_cuda/csrc/CudaHooks.cpp)."""
    from torch_openreg import _C

    if _C._cuda_hooks_failure is not None:
        raise RuntimeError(
            f"PyTorch cannot be given the device's hooks: {_C._cuda_hooks_failure}. Do not load that library, or "
            f"{OWN_NAME}"
        )


# LEFT OUT OF A NEW BACKEND END
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

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None and spec.loader is not None
        execute = spec.loader.exec_module

        def execute_and_tell(module: ModuleType) -> None:
            execute(module)
            self._then(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


# Dynamo does not trace the functions of these modules: it ends the graph before such a call, and the program calls the
# function. On CUDA, C functions do their work, which dynamo does not trace either.
NOT_TRACED = (
    "torch_openreg.openreg.nvtx",
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    "torch_openreg._cuda",
    # LEFT OUT OF A NEW BACKEND END
)


def attach_compiler() -> None:
    """Registers the device with dynamo and inductor, the parts of torch.compile, when their modules are imported."""

    def tell_dynamo(_: ModuleType) -> None:
        from torch_openreg._inductor import _device

        _device.register()

    def make_traceable(_: ModuleType) -> None:
        from torch_openreg._inductor import _device

        _device.make_traceable()

    def tell_inductor(common: ModuleType) -> None:
        from torch_openreg import _inductor

        _inductor.register_with_inductor(common)

    def patch_inductor(_: ModuleType) -> None:
        from torch_openreg._inductor import _differences

        _differences.patch_inductor()

    def make_capturable(optimizer: ModuleType) -> None:
        from torch_openreg._inductor import _device

        _device.make_capturable(optimizer.OptimizerVariable)

    def leave_out(trace_rules: ModuleType) -> None:
        for name in NOT_TRACED:
            trace_rules.add(name)

    _WhenImported("torch._dynamo.device_interface", tell_dynamo)
    if device_type != "cuda":  # dynamo knows torch.cuda
        _WhenImported("torch._dynamo", make_traceable)
    _WhenImported("torch._dynamo.trace_rules", leave_out)
    _WhenImported("torch._dynamo.variables.optimizer", make_capturable)
    _WhenImported("torch._inductor.codegen.common", tell_inductor)
    _WhenImported("torch._inductor.compile_fx", patch_inductor)


def attach_dtensor() -> None:
    """Registers how the device draws random numbers, when torch.distributed.tensor is imported."""

    def register(random: ModuleType) -> None:
        from torch_openreg import _dtensor

        _dtensor.register(random)

    _WhenImported("torch.distributed.tensor._random", register)


def attach_module() -> None:
    """Makes torch.openreg the device's module."""
    import torch

    from torch_openreg import openreg

    sys.meta_path.insert(0, _Submodules())
    torch._register_device_module("openreg", openreg)


# LEFT OUT OF A NEW BACKEND START: the face cuda
def attach_cuda() -> None:
    """Gives torch._C the attributes that it has in a build with CUDA, and executes torch.cuda again."""
    import torch

    from torch_openreg import _cuda, openreg

    _cuda.attach()
    openreg.DeferredOpenRegCallError = torch.cuda.DeferredCudaCallError  # type: ignore[misc, assignment]


# LEFT OUT OF A NEW BACKEND END
def add_methods() -> None:
    """Adds methods such as Tensor.openreg() and is_openreg, and repairs PyTorch's own methods and pickling."""
    import torch

    from torch_openreg.openreg import _profiler_names, _reductions, _tensor_methods

    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    _tensor_methods.install()
    _profiler_names.install()
    _reductions.install()


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


# LITERALINCLUDE START: PHASES
PHASES: dict[str, tuple[Callable[[], None], ...]] = {
    "openreg": (
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
    ),
    # LEFT OUT OF A NEW BACKEND START: the face cuda
    # A device of type cuda does not use PrivateUse1, so another backend may take it.
    "cuda": (
        check_platform,
        check_environment,
        check_build,
        check_cuda,
        check_libraries,
        open_libraries,
        check_hooks,
        attach_cuda,
        attach_compiler,
        attach_dtensor,
    ),
    # LEFT OUT OF A NEW BACKEND END
}
# LITERALINCLUDE END: PHASES
