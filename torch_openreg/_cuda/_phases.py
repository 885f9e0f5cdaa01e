"""The phases of the start for the type cuda.

A device of type cuda does not use PrivateUse1, so another backend may take it.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from importlib.machinery import ExtensionFileLoader
from types import ModuleType

from torch_openreg._build import build_info, check_build, check_libraries, cpu_build
from torch_openreg._loader import attach_dtensor, check_environment, check_platform, compiler_rows, when_imported

OWN_NAME = 'unset TORCH_OPENREG_AS and use the device by its own name, "openreg".'


def check_cuda() -> None:
    """Checks that this package was built with the device type cuda, and that the name "cuda" is free.

    The name is free in a CPU build of PyTorch, and in a build with CUDA that _without_cuda.py has made one.
    """
    import torch

    if "_C_cuda.so" not in build_info().library_sizes:
        raise ImportError(
            f"this torch_openreg was built without the device type cuda. Install a build that has it, or {OWN_NAME}"
        )
    if torch._C._has_cuda:
        raise RuntimeError(f"PyTorch {torch.__version__} is a build with {_why_taken()}, or {OWN_NAME}")
    if (prepared := _without_cuda()) and (text := prepared.about_gpus("/dev")):
        from torch_openreg._failure import warn

        warn(text)


def _without_cuda() -> ModuleType | None:
    """The module of the package torch_openreg_cuda that acts before a build with CUDA. None if it could not act."""
    return sys.modules.get("torch_openreg_cuda._without_cuda")


def _why_taken() -> str:
    """Why the name "cuda" belongs to real GPUs in this process, and what to do."""
    import torch

    install = f"Install a CPU build with `{cpu_build(torch.__version__)}`"
    if not torch.version.cuda:
        return f"ROCm {torch.version.hip}, where the name cuda belongs to real GPUs. {install}"
    if failure := getattr(_without_cuda(), "failure", ""):
        return f"CUDA {torch.version.cuda}, which cannot be used without its CUDA libraries: {failure}. {install}"
    return (
        f"CUDA {torch.version.cuda}, and its CUDA libraries were opened before this package could leave them out. Start "
        "the program with `python -m torch_openreg run --as cuda ...`"
    )


def open_libraries() -> None:
    """Opens _C_cuda.so as the module torch_openreg._C, so that the Python code is the same for both types."""
    from torch_openreg._cuda._extensions import open_registration, open_stubs

    folder = os.path.dirname(build_info().__file__)
    open_stubs(os.path.join(folder, "lib", "libopenreg.so"))  # _C_cuda.so needs them, and tells them of its functions
    path = os.path.join(folder, "_C_cuda.so")
    loader = ExtensionFileLoader("torch_openreg._C", path)
    spec = importlib.util.spec_from_file_location("torch_openreg._C", path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[spec.name] = module
    setattr(sys.modules["torch_openreg"], "_C", module)  # noqa: B010
    open_registration(os.path.join(folder, "lib", "libtorch_openreg_cuda_registration.so"))


def check_hooks() -> None:
    """Checks that the opened library could give PyTorch the device's hooks (CudaHooks.h)."""
    from torch_openreg._cuda._bindings import _cuda_hooks_failure

    if _cuda_hooks_failure is not None:
        raise RuntimeError(
            f"PyTorch cannot be given the device's hooks: {_cuda_hooks_failure}. Do not load that library, or "
            f"{OWN_NAME}"
        )


def attach_cuda() -> None:
    """Gives torch._C the attributes that it has in a build with CUDA, and executes torch.cuda again.

    C++ extensions find their headers and libraries once torch.utils.cpp_extension is imported.
    """
    from torch_openreg._cuda import _attach

    _attach.attach()
    when_imported((("torch.utils.cpp_extension", "torch_openreg._cuda._extensions:patch"),))


def attach_compiler() -> None:
    """Registers the device with dynamo and inductor, the parts of torch.compile, when their modules are imported."""
    # Dynamo knows torch.cuda, and PyTorch has registered its random-number state.
    known = ("make_traceable", "register_rng_state")
    when_imported(row for row in compiler_rows() if not row[1].endswith(known))
    when_imported(
        (
            ("torch._dynamo.trace_rules", "torch_openreg._cuda._inductor:leave_out"),
            ("torch._inductor.config", "torch_openreg._cuda._missing:disable_triton"),
            ("triton.backends.nvidia.driver", "torch_openreg._cuda._missing:leave_gpus_out"),
            ("torch._inductor.compile_fx", "torch_openreg._cuda._inductor:patch_inductor"),
        )
    )


PHASES: tuple[Callable[[], None], ...] = (
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
)
