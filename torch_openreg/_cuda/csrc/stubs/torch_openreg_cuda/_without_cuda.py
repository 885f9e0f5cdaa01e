"""Makes a build of PyTorch with CUDA a CPU build, in this process only and before torch is imported.

1. Opens stubs that have the names of PyTorch's libraries for CUDA (csrc/stubs). The dynamic loader then takes these for
   the libraries, and does not open the real ones, which would register CUDA's kernels, hooks and allocators.
2. Right after the import of torch._C, removes the attributes that a CPU build does not have. All of PyTorch's Python
   code then takes the path of a CPU build, and the device of type cuda starts as there. The package cuda.bindings counts
   as missing.

The stubs must have every name that libtorch_python.so takes from the real libraries. This is checked before anything is
opened: otherwise, the dynamic loader would end `import torch` with the name of one symbol.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.machinery
import os
import re
import sys
from collections.abc import Callable, Iterable
from types import ModuleType

from torch_openreg_cuda._elf import GLOBAL, Library, gnu_hash

LIBRARIES = ("libc10_cuda.so", "libtorch_nvshmem.so", "libtorch_cuda.so")
# What libtorch_python.so also takes names from. libtorch_cuda.so has copies of some of these.
OTHERS = ("libtorch_cpu.so", "libc10.so")

failure = ""
"""Why a build with CUDA was left as it is: part of a sentence. Empty if it was prepared, or if it is a CPU build."""

opened: list[ctypes.CDLL] = []


def prepare(torch: str) -> None:
    """Prepares the PyTorch in the folder ``torch``. Raises nothing: ``import torch`` must work in any case."""
    global failure
    lib = os.path.join(torch, "lib")
    if opened or not os.path.exists(os.path.join(lib, LIBRARIES[-1])):
        return  # prepared already, or a CPU build
    try:
        if unknown := unknown_names(lib, names_of_stubs()):
            more = f" and {len(unknown) - 1} more" if len(unknown) > 1 else ""
            failure = f"its libtorch_python.so needs {unknown[0]}{more}, which this torch_openreg does not know"
            return
        opened.extend(map(ctypes.CDLL, stubs()))
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        return
    for compiler in compilers(os.path.dirname(torch)):
        with contextlib.suppress(OSError):
            ctypes.CDLL(compiler)
    # Kineto would print that CUPTI finds no driver.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    sys.meta_path.insert(
        0,
        _After({"torch._C": _remove_from_c, "torch.version": _remove_version, "torch.cuda._utils": _remove_bindings}),
    )


def stubs() -> list[str]:
    return [os.path.join(os.path.dirname(__file__), "lib", name) for name in LIBRARIES]


def compilers(packages: str) -> list[str]:
    """NVIDIA's library NVRTC in the folder ``packages``, where pip installs it. Nothing calls it.

    PyTorch's build files link extensions with it, and these have no path to it: libtorch_cuda.so would have opened it.
    """
    nvidia = os.path.join(packages, "nvidia")
    folders = [os.path.join(nvidia, name, "lib") for name in os.listdir(nvidia)] if os.path.isdir(nvidia) else []
    return [
        os.path.join(folder, name)
        for folder in filter(os.path.isdir, folders)
        for name in os.listdir(folder)
        if name.startswith("libnvrtc.so.")
    ]


def names_of_stubs() -> set[str]:
    return {symbol.name for stub in stubs() for symbol in Library(stub).symbols(defined=True)}


def unknown_names(lib: str, known: set[str]) -> list[str]:
    """The names that libtorch_python.so in the folder ``lib`` takes from CUDA's libraries, besides the known ones."""

    def libraries(names: Iterable[str]) -> list[Library]:
        paths = (os.path.join(lib, name) for name in names)
        return [Library(path) for path in paths if os.path.exists(path)]

    cuda, others = libraries(LIBRARIES), libraries(OTHERS)
    unknown = []
    for symbol in Library(os.path.join(lib, "libtorch_python.so")).symbols(defined=False):
        if symbol.binding != GLOBAL or symbol.name in known:
            continue
        code = gnu_hash(symbol.name)
        if any(each.defines(symbol.name, code) for each in cuda) and not any(
            each.defines(symbol.name, code) for each in others
        ):
            unknown.append(symbol.name)
    return sorted(unknown)


def about_gpus(devices: str) -> str:
    """A sentence for the device's start, if the folder of devices has NVIDIA's GPUs. The driver is not asked."""
    gpus = sum(re.fullmatch(r"nvidia\d+", name) is not None for name in os.listdir(devices))
    if not gpus:
        return ""
    return (
        f"This machine has {gpus} NVIDIA GPU{'s' * (gpus > 1)}, which this process does not use: TORCH_OPENREG_AS=cuda "
        "asks for simulated devices. Unset it to use the GPUs."
    )


class _After:
    """Finder that calls a function after the import of each of some modules, with the module."""

    def __init__(self, then: dict[str, Callable[[ModuleType], None]]) -> None:
        self._then = then

    def find_spec(self, name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name not in self._then:
            return None
        then = self._then.pop(name)
        if not self._then:
            sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.machinery.PathFinder.find_spec(name, path)  # type: ignore[arg-type]
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_tell(module: ModuleType) -> None:
                execute(module)
                then(module)

            spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec


def _remove_version(module: ModuleType) -> None:
    module.cuda = None  # type: ignore[attr-defined]


def _remove_bindings(module: ModuleType) -> None:
    """The package cuda.bindings, which is installed with a build with CUDA, asks NVIDIA's driver about streams and graphs.
    Other modules of PyTorch take this constant from here.
    """
    module._HAS_CUDA_BINDINGS = False  # type: ignore[attr-defined]


def _remove(module: ModuleType, names: Iterable[str]) -> None:
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
        sys.modules.pop(f"{module.__name__}.{name}", None)


def _remove_from_c(module: ModuleType) -> None:
    _remove(module, [name for name in dir(module) if name.startswith(ONLY_CUDA)])
    for name in FALSE:
        if hasattr(module, name):
            setattr(module, name, False)
    if make := getattr(module, "_c10d_init", None):

        def make_and_remove() -> object:
            made = make()
            distributed = module._distributed_c10d
            _remove(distributed, [name for name in dir(distributed) if name.startswith(ONLY_CUDA_DISTRIBUTED)])
            return made

        module._c10d_init = make_and_remove  # type: ignore[attr-defined]


# What a build with CUDA says of itself in torch._C (2.13 to 2.15).
FALSE = ("_has_cuda", "_has_cudnn", "_has_cusparselt", "_has_gds")
# How the names begin that only a build with CUDA has in torch._C, and in torch._C._distributed_c10d.
ONLY_CUDA = (
    *("_CUDA", "_CUuuid", "_CudaDeviceProperties", "_CudaEventBase", "_CudaStreamBase", "_FastCudaLauncher"),
    *("_MemPool", "_StaticCudaLauncher", "_WorkqueueScope", "_broadcast", "_clear_storage_data_ptr_access_error_msg"),
    *("_construct_CUDA_Tensor_From_Storage_And_Metadata", "_cuda_", "_cudart", "_cudnn", "_cusparselt"),
    *("_free_And_Remove_DeleterFn", "_gather", "_gds_", "_graph_pool_handle", "_has_Standard_Deleter"),
    *("_host_emptyCache", "_nccl_", "_nvtx", "_rocm_is_backward_pass", "_scatter"),
    *("_set_storage_access_error_msg", "_set_storage_data_ptr_access_error_msg", "_tensors_data_ptrs_at_indices_equal"),
)
ONLY_CUDA_DISTRIBUTED = (
    *("NCCLXStub", "ProcessGroupNCCL", "_DEFAULT_PG_NCCL_TIMEOUT", "_dump_nccl_trace"),
    *("_get_intra_node_comm_usage_counter", "_hash_tensors", "_is_nvshmem_available", "_nvshmemx_cumodule_init"),
    *("_register_external_nccl_comm", "_reset_fr_recording_nccl", "_unregister_external_nccl_comm"),
)
