"""Calls PyTorch's C++ interfaces to a device from Python, through the functions of interfaces.cpp.

The first use compiles interfaces.cpp into a library in the user's cache folder. The folder keeps one library for each
version of the source and of PyTorch, and for each path of a compiler.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch

SOURCE = Path(__file__).with_name("interfaces.cpp")
_FAILED = -(1 << 63)


class Interfaces:
    """The C++ interfaces of one device.

    ``interfaces("npu:1").hooks_device_count()`` calls hooks_device_count("npu:1") of interfaces.cpp. A function whose
    name begins with ``stubs_`` takes no device. All functions take and return integers. A C++ exception becomes a
    RuntimeError with its message.
    """

    def __init__(self, device: str, library: ctypes.CDLL) -> None:
        self._device, self._library = device, library

    def __getattr__(self, question: str) -> Callable[..., int]:
        function = self._library[question]
        function.restype = ctypes.c_int64
        device = [] if question.startswith("stubs_") else [self._device.encode()]

        def ask(*arguments: int) -> int:
            answer: int = function(*device, *map(ctypes.c_int64, arguments))
            if answer == _FAILED:
                raise RuntimeError(self._library.error().decode(errors="replace"))
            return answer

        return ask


def _compiler() -> str:
    """The C++ compiler: the one in CXX, or the first of c++, g++ and clang++ that exists. Else raises RuntimeError."""
    for name in filter(None, (os.environ.get("CXX"), "c++", "g++", "clang++")):
        if found := shutil.which(name):
            return found
    raise RuntimeError("there is no C++ compiler: install one, or name one in the environment variable CXX")


@functools.cache
def _library() -> ctypes.CDLL:
    compiler, root = _compiler(), Path(torch.__file__).parent
    key = hashlib.sha256(f"{SOURCE.read_text()} {torch.__version__} {root} {compiler}".encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torch_conformance"
    path = folder / f"interfaces-{key}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as made:  # because another process may compile too
            options = ["-shared", "-fPIC", "-std=c++20", "-O0", "-w", f"-I{root / 'include'}", f"-L{root / 'lib'}"]
            options.append(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}")
            command = [compiler, *options, SOURCE, "-o", f"{made}/library.so", "-lc10", "-ltorch_cpu"]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                raise RuntimeError(f"interfaces.cpp does not compile: {result.stderr.strip()[:1000]}")
            os.replace(f"{made}/library.so", path)
    library = ctypes.CDLL(str(path))
    library.error.restype = ctypes.c_char_p
    return library


def interfaces(device: str) -> Interfaces:
    """The C++ interfaces of ``device``. Compiles interfaces.cpp if the cache folder has no library for it.

    Raises RuntimeError if there is no C++ compiler, or if the compilation fails.
    """
    return Interfaces(device, _library())
