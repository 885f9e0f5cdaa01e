"""The list of the names of the stub libraries (names.txt), and the C++ that CMake makes from it.

    python names.py collect FOLDER...     writes names.txt; a folder is torch/lib of a build with CUDA
    python names.py generate LIBRARY      prints the C++ of one library
    python names.py check FOLDER          fails if the list lacks a name that libtorch_python.so needs there

The list has what libtorch_python.so takes from the libraries, and what compiled code of other packages can take: all of
libc10_cuda.so, the functions of the namespace at::cuda that are neither templates nor operators, and those of PyTorch's
stable ABI that are not operators. A line is ``LIBRARY NAME`` for a function and ``LIBRARY NAME SIZE`` for data. One list serves all versions of PyTorch.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from torch_openreg_cuda._elf import FUNCTION, GLOBAL, OBJECT, Library, Symbol
from torch_openreg_cuda._without_cuda import unknown_names

NAMES = Path(__file__).with_name("names.txt")
LIBRARIES = ("c10_cuda", "torch_nvshmem", "torch_cuda")
# libtorch_cuda.so has copies of symbols of these libraries. A stub must not take their place.
SHARED = ("c10", "torch_cpu", "torch_python", "torch", "shm")
PUBLIC = re.compile(r"(at::cuda|at::CUDAGeneratorImpl)::(?!(jit|blas|cub|tunable|solver|sparse)\b)[^<]*?(\(.*)?")
STABLE = re.compile(r"aoti_torch_(?!cuda_)\w+|torch_\w+")  # aoti_torch_cuda_*: operators
OPERATOR = re.compile(r"at::Tensor|c10::Scalar|ArrayRef|c10::TensorOptions")  # in the arguments
ALLOCATOR = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"

Row = tuple[str, str, int]  # the library, the name, the size of data


def readable(names: list[str]) -> list[str]:
    return subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True).stdout.split(
        "\n"
    )


def is_public(library: str, readable_name: str) -> bool:
    if STABLE.fullmatch(readable_name):
        return True
    matched = PUBLIC.fullmatch(readable_name)
    return library == "c10_cuda" or (matched is not None and not OPERATOR.search(matched[3] or ""))


def collect(folder: Path) -> Iterator[Row]:
    """The rows for one build of PyTorch."""

    def symbols(name: str, defined: bool = True) -> Iterator[Symbol]:
        return Library(str(folder / f"lib{name}.so")).symbols(defined)

    shared = {symbol.name for name in SHARED for symbol in symbols(name)}
    needed = {symbol.name for symbol in symbols("torch_python", defined=False)}
    for library in LIBRARIES:
        if not (folder / f"lib{library}.so").exists():
            continue  # a build for another platform has no NVSHMEM
        found = [each for each in symbols(library) if each.name not in shared]
        for symbol, name in zip(found, readable([each.name for each in found]), strict=False):
            is_wanted = symbol.name in needed or (symbol.binding == GLOBAL and is_public(library, name))
            if is_wanted and symbol.type in (FUNCTION, OBJECT) and symbol.name not in ("_init", "_fini"):
                yield library, symbol.name, symbol.size if symbol.type == OBJECT else 0


def source(rows: list[Row]) -> Iterator[str]:
    """The C++ of one library."""
    yield '#include "stubs/Stubs.h"\n'
    for _, name, size in rows:
        if not size:
            yield f"STUB_FUNCTION({name})"
        elif name.startswith("_ZTI"):
            yield f"STUB_TYPE({name}, {size // 8})"
        elif name.startswith("_ZTV"):
            yield f"STUB_VTABLE({name}, {size // 8})"
        elif name == ALLOCATOR:
            yield f"STUB_OBJECT({name})"
        else:
            yield f"STUB_DATA({name}, {size})"


def read() -> list[Row]:
    fields = [line.split() for line in NAMES.read_text().splitlines()]
    return [(library, name, int(size[0]) if size else 0) for library, name, *size in fields]


def main(command: str, *arguments: str) -> None:
    if command == "generate":
        print("\n".join(source([row for row in read() if row[0] == arguments[0]])))
        return
    if command == "check":
        if unknown := unknown_names(arguments[0], {name for _, name, _ in read()}):
            sys.exit(f"{NAMES} lacks names that {arguments[0]} needs:\n" + "\n".join(readable(unknown)))
        return
    sizes: dict[tuple[str, str], int] = {}
    for folder in arguments:
        for library, name, size in collect(Path(folder)):
            sizes[library, name] = max(size, sizes.get((library, name), 0))
    lines = [f"{library} {name}" + (f" {size}" if size else "") for (library, name), size in sorted(sizes.items())]
    NAMES.write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main(*sys.argv[1:])
