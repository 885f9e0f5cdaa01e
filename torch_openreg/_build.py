"""Which build of the package this is, for which PyTorch, and whether its libraries are whole. Opens no library."""

from __future__ import annotations

import os
import sys
from typing import Any

REBUILD = "pip install --no-build-isolation --force-reinstall --no-deps <its sources>"
DAMAGED = f": a full disk or an interrupted install may have cut it. Install torch_openreg again: {REBUILD}"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def cpu_build(version: str | None) -> str:
    """The command that installs a CPU build of this version of PyTorch, or of the newest version."""
    # Without "+cpu", pip would keep an installed build of that release with CUDA.
    wanted = f"torch=={version.partition('+')[0]}+cpu" if version else "torch"
    return f"pip install {wanted} --index-url {CPU_INDEX}"


def builds() -> list[str]:
    """The minor versions of PyTorch for which this wheel has builds, oldest first; empty for a build from the sources.

    A wheel has a folder such as ``torch2.13`` with the libraries for each version, because pip
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
