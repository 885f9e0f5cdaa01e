"""C++ extensions whose host code uses CUDA: torch.utils.cpp_extension.

A CPU build of PyTorch ships the headers of c10/cuda and ATen/cuda, and these include headers of NVIDIA's toolkit. The
folder of the package torch_openreg_cuda is laid out as a toolkit is: ``include`` has headers of ours in place of the
toolkit's, and ``lib`` has the libraries that an extension is linked with. torch.utils.cpp_extension.CUDA_HOME stays
None, because it tells programs whether sources of CUDA's C++ can be compiled.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from types import ModuleType
from typing import Any

from torch_openreg import _upstream
from torch_openreg._cuda._upstream import EXTENSIONS


def open_stubs(device_library: str) -> None:
    """Opens the libraries whose functions extensions call.

    Their symbols are global, because an extension that PyTorch links as one for the CPU does not name the libraries.
    ``device_library``: the path of libopenreg.so, which libcudart.so needs. A wheel has one for each PyTorch.
    """
    from torch_openreg_cuda import _without_cuda  # type: ignore[import-untyped]

    ctypes.CDLL(device_library)
    for path in (join_cuda_home("lib", "libcudart.so"), *_without_cuda.stubs()):
        ctypes.CDLL(path, ctypes.RTLD_GLOBAL)


def open_registration(library: str) -> None:
    """Opens the library that leaves out kernels for GPUs when other libraries register theirs (GpuCode.cpp)."""
    ctypes.CDLL(library, ctypes.RTLD_GLOBAL)


def patch(_: ModuleType) -> None:
    """Applies the rows for the module torch.utils.cpp_extension."""
    _upstream.apply(EXTENSIONS)


def join_cuda_home(*paths: str) -> str:
    """A path in the folder that takes the place of NVIDIA's toolkit."""
    import torch_openreg_cuda

    return os.path.join(os.path.dirname(torch_openreg_cuda.__file__), *paths)


def include_paths(original: Callable[..., list[str]], device_type: str = "cpu", *args: Any, **kwargs: Any) -> list[str]:
    """An extension for the CPU finds the headers for CUDA too, as on a machine with the toolkit in /usr/include."""
    return original("cuda" if device_type == "cpu" else device_type, *args, **kwargs)


def is_cuda_file(original: Callable[[str], bool], path: str) -> bool:
    """False. Raises OSError for a source in CUDA's C++, as PyTorch does on a machine without nvcc."""
    if original(path):
        raise OSError(
            f"CUDA_HOME environment variable is not set. Nothing compiles the CUDA C++ of {path} for the simulated device."
        )
    return False
