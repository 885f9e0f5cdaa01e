"""The folders of the headers and libraries of this package, for extensions that are compiled against it."""

from pathlib import Path

from torch_openreg._build import build_info

_build_info = build_info()

# The folder of the generated file, and not of this file: an editable install keeps built files apart from the sources.
_root = Path(_build_info.__file__).parent

__version__: str = _build_info.version

cmake_prefix_path: str = str(_root / "share" / "cmake")
"""The value for CMAKE_PREFIX_PATH, with which ``find_package(torch_openreg)`` works.

As ``torch.utils.cmake_prefix_path``.
"""


def include_paths() -> list[str]:
    """The folders of ``openreg.h``, ``torch_openreg/`` and ``runtime/``.

    As ``torch.utils.cpp_extension.include_paths``. The headers of ``torch_openreg/`` include each other from that
    folder, as ``"runtime/OpenRegStream.h"``.
    """
    return [str(_root / "include"), str(_root / "include" / "torch_openreg")]


def library_paths() -> list[str]:
    """The folders of the shared libraries. As ``torch.utils.cpp_extension.library_paths``."""
    return [str(_root / "lib")]
