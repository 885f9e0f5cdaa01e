"""Writes the sizes of the package's shared libraries into _build_info.py, for torch_openreg._build.check_libraries().

CMake runs this program at the end of an install, when the libraries are stripped and have their final run paths. If the
libraries of an installed package or of an unpacked wheel are changed later, run it again:

    python cmake/library_sizes.py <the folder with _build_info.py>

A wheel with builds for several versions of PyTorch has such a folder for each version.
"""

from __future__ import annotations

import sys
from pathlib import Path

LINE = "library_sizes = "


def record(package: Path) -> None:
    """Records the sizes. ``package`` is the folder with _build_info.py and _C.so."""
    libraries = sorted([*package.glob("*.so"), *package.glob("lib/*.so")])
    sizes = {library.relative_to(package).as_posix(): library.stat().st_size for library in libraries}
    info = package / "_build_info.py"
    lines = [line for line in info.read_text().splitlines() if not line.startswith(LINE)]
    info.write_text("\n".join([*lines, f"{LINE}{sizes}"]) + "\n")


if __name__ == "__main__":
    record(Path(sys.argv[1]))
