"""Says whether another project called torch_openreg stands in the place of this one, and where it is.

pip replaces a distribution by another one of the same name, and a folder of this name on ``sys.path`` hides the
installed package. This file imports nothing of its package: torch_openreg_autoload.py runs it by its path if the
import of the package led to another one.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from importlib.util import find_spec

NAME = "torch_openreg"
HERE = os.path.dirname(os.path.abspath(__file__))


def _owner(folder: str) -> str:
    ours = os.path.exists(os.path.join(folder, os.path.basename(__file__)))
    return "another copy of this project" if ours else "another project of this name"


def hidden() -> str:
    """A sentence if Python imports the package from another folder than this file's; else an empty string."""
    try:
        package = sys.modules.get(NAME)
        spec = package.__spec__ if package else find_spec(NAME)
    except ValueError:  # a package that is being imported may have no __spec__
        return ""
    found = [os.path.abspath(folder) for folder in (spec and spec.submodule_search_locations) or ()]
    if not found or any(os.path.realpath(folder) == os.path.realpath(HERE) for folder in found):
        return ""
    return (
        f"Python imports {NAME} from {found[0]}, which is {_owner(found[0])} and hides {HERE}. "
        "Leave the folder in which it lies, or take that folder off sys.path."
    )


def hiding(folder: str) -> str:
    """A sentence if a program that is started in this folder imports another package than this one; else ""."""
    there = os.path.join(folder, NAME)
    if not os.path.exists(os.path.join(there, "__init__.py")) or os.path.realpath(there) == os.path.realpath(HERE):
        return ""
    return (
        f"`python -c` and `python -m` in this folder import {NAME} from {there}, which is {_owner(there)} and hides "
        f"{HERE}. Leave this folder."
    )


def replaced() -> str:
    """A sentence if the installed distribution of this name is not this project's; else an empty string."""
    try:
        installed = metadata.distribution(NAME)
    except metadata.PackageNotFoundError:
        return ""
    points = [point.value.partition(":")[0] for point in installed.entry_points if point.group == "torch.backends"]
    if f"{NAME}_autoload" in points:
        return ""
    return (
        f"The installed distribution {NAME} {installed.version} in {installed.locate_file('')} is another project of "
        f"this name, and not {HERE}: pip replaces one by the other. Uninstall it, and install this project again."
    )


def told() -> str:
    """What is not as it should be, in sentences; empty if this project is installed and loaded."""
    return " ".join(filter(None, [hidden(), replaced()]))
