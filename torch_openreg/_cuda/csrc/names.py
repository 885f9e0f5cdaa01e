"""The table of names with which CMake compiles the registering files a second time, for devices of type ``cuda``.

A registering file gives something to PyTorch under PyTorch's literal name PrivateUse1, as the files of every backend
outside PyTorch do. The table gives each such identifier the name that a backend inside PyTorch uses. All other files
are compiled once: they take the type of the device, and the words of messages, from ``identity``
(csrc/runtime/OpenRegIdentity.h). Identity.cpp of this folder defines it for CUDA.

    python names.py list SOURCE FILE...            prints the registering files
    python names.py rename SOURCE TARGET FILE...   writes renamed copies of them
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "cmake"))

from rename import IDENTIFIER, Names, UnknownName, rename_files

# LITERALINCLUDE START: NAMES OF CUDA
KEYS = ("Autocast", "Autograd", "NestedTensor", "Quantized", "Sparse", "SparseCsr")

NAMES = Names(
    covers="(?i)privateuse",
    identifiers={
        "PrivateUse1": "CUDA",  # DeviceType, DispatchKey, TORCH_LIBRARY_IMPL
        **{f"{key}PrivateUse1": f"{key}CUDA" for key in KEYS},
        "REGISTER_PRIVATEUSE1_DISPATCH": "REGISTER_CUDA_DISPATCH",
        "set_privateuse1_dispatch_ptr": "set_cuda_dispatch_ptr",
        "PRIVATEUSE1_RUNTIME": "CUDA_RUNTIME",  # types of Kineto's events
        "PRIVATEUSE1_DRIVER": "CUDA_DRIVER",
    },
)
# LITERALINCLUDE END: NAMES OF CUDA


def is_registering(text: str) -> bool:
    """Whether the text of a source file has one of the names, other than in comments."""
    return not NAMES.identifiers.keys().isdisjoint(re.findall(IDENTIFIER, re.sub("//.*", "", text)))


if __name__ == "__main__":
    command, source, *arguments = sys.argv[1:]
    if command == "list":
        print(";".join(file for file in arguments if is_registering((Path(source) / file).read_text())), end="")
    else:
        target, *files = arguments
        try:
            rename_files(Path(source), Path(target), files, NAMES)
        except UnknownName as error:
            sys.exit(f"torch_openreg/_cuda/csrc/names.py has no name on CUDA for:\n{error}")
