"""Where the parts of this package are that other people's extensions compile and link against."""

from pathlib import Path

from torch_openreg._loader import build_info

_build_info = build_info()

# Beside the generated file, not this one: an editable install keeps what was built apart from the sources.
_root = Path(_build_info.__file__).parent

__version__: str = _build_info.version

cmake_prefix_path: str = str(_root / "share" / "cmake")
"""For CMAKE_PREFIX_PATH, so that ``find_package(torch_openreg)`` works. As ``torch.utils.cmake_prefix_path``."""


def include_paths() -> list[str]:
    """The folders of ``openreg.h`` and ``torch_openreg/``. As ``torch.utils.cpp_extension.include_paths``."""
    return [str(_root / "include")]


def library_paths() -> list[str]:
    """The folders of the shared libraries. As ``torch.utils.cpp_extension.library_paths``."""
    return [str(_root / "lib")]
