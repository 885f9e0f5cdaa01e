"""Finds the installed PyTorch without importing it: an import takes a second, and loads this package's old build.

CMake runs this file as a script, which prints the folder and the version of torch, and the folder of torchgen.
scikit-build-core calls dynamic_metadata().
"""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        sys.exit(
            f"torch_openreg builds against an installed PyTorch, and {sys.executable} has no package {package}. "
            "Install torch first, then build with: pip install --no-build-isolation ."
        )
    return Path(spec.origin).parent


def torch_version() -> str:
    text = (folder("torch") / "version.py").read_text()
    match = re.search(r"__version__ = '([^']+)'", text)
    if match is None:
        sys.exit(f"torch_openreg cannot read PyTorch's version from {folder('torch') / 'version.py'}.")
    return match[1]


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    major, minor = torch_version().split(".")[:2]
    return {"dependencies": [f"torch>={major}.{minor},<{major}.{int(minor) + 1}"]}


def dynamic_wheel(settings: Mapping[str, Any]) -> dict[str, bool]:
    """Lets a wheel have other dependencies than its sdist: the wheel requires the PyTorch with which it was built."""
    return {"dependencies": True}


if __name__ == "__main__":
    if importlib.util.find_spec("yaml") is None:
        sys.exit(
            f"The build of torch_openreg reads PyTorch's list of operators with PyYAML, and {sys.executable} has no "
            "package yaml. Install what the build needs, then build again: "
            'pip install "scikit-build-core>=1.1" pyyaml cmake ninja'
        )
    print(folder("torch"), torch_version(), folder("torchgen"), sep=";", end="")
