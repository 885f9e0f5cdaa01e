"""Every environment variable of the device and of the package, in the table VARIABLES.

A sub-package has its rows in a file _variables.py. The tables do not have variables of other programs that the code also
reads, such as RANK and NO_COLOR. The variables that have a few possible values are checked here, at ``import torch``,
so all bad values give an error of the same form. The others are checked by torch_openreg._loader at ``import torch``,
by the function ``check`` of a file _variables.py, or by the file that reads the variable (``Variable.reader``).
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any, NamedTuple


@functools.cache
def parts_with(file: str) -> tuple[str, ...]:
    """The names of the sub-packages that have this file: what can be deleted is found, and not named."""
    folder = os.path.dirname(__file__)
    names = os.listdir(folder) if os.path.isdir(folder) else ()  # a package in an archive has no folder
    return tuple(sorted(name for name in names if os.path.exists(os.path.join(folder, name, file))))


def modules_of_parts(name: str) -> list[ModuleType]:
    """Imports the module of this name, a file or a package, from each sub-package that has it."""
    parts = parts_with(f"{name}.py") or parts_with(name)
    return [importlib.import_module(f"torch_openreg.{part}.{name}") for part in parts]


class Variable(NamedTuple):
    """One environment variable.

    Args:
        name: the name of the variable.
        kind: ``choice`` if the value is one of `choices`, ``choices`` if it is some of them, joined by commas, else a
            word for its values.
        default: the value that an unset variable stands for; empty if it stands for none.
        meaning: one line.
        reader: the file that reads it, from the root of the project; empty if PyTorch reads it.
        choices: what the kinds ``choice`` and ``choices`` choose from. For the kind ``choice`` the default is first.
    """

    name: str
    kind: str
    default: str
    meaning: str
    reader: str
    choices: tuple[str, ...] = ()

    def check(self, value: str) -> None:
        """Raises ValueError if `value` is none of the choices. Other kinds are checked by their readers."""
        if self.kind == "choice" and value not in self.choices:
            first, *others = self.choices
            *some, last = [f"{first} (the default)", *others]
            allowed = " or ".join(filter(None, (", ".join(some), last)))
            raise ValueError(f"{self.name} is {value!r}. Set it to {allowed}, or unset it.")
        if self.kind == "choices" and value.strip():
            chosen = {name.strip() for name in value.split(",")} - {""}
            if not chosen or not chosen <= {*self.choices}:
                raise ValueError(
                    f"{self.name} is {value!r}. Set it to {', '.join(self.choices)} (separated by commas), or unset it."
                )


def _choice(name: str, choices: tuple[str, ...], meaning: str, reader: str) -> Variable:
    return Variable(name, "choice", choices[0], meaning, reader, choices)


_DEVICE = "third_party/openreg/csrc/environment.cpp"
_ALLOCATOR = "csrc/runtime/memory/OpenRegAllocatorConfig.cpp"

VARIABLES: tuple[Variable, ...] = (
    # The device.
    Variable("OPENREG_DEVICE_COUNT", "number", "2", "the number of devices", _DEVICE),
    Variable("OPENREG_DEVICE_MEMORY", "size", "16G", "the bytes of each device", _DEVICE),
    Variable("OPENREG_VISIBLE_DEVICES", "list", "all", "the devices that the process may use", _DEVICE),
    _choice("OPENREG_EXECUTION", ("inline", "async"), "when queued work runs", _DEVICE),
    Variable("PYTORCH_ALLOC_CONF", "settings", "", "settings of all caching allocators", ""),
    Variable("OPENREG_ALLOC_CONF", "settings", "", "settings of this device's allocator", _ALLOCATOR),
    # The package.
    _choice(
        "TORCH_OPENREG_AS",
        ("openreg", *(name[1:] for name in parts_with("_identity.py"))),
        "the type of the devices",
        "torch_openreg/_identity.py",
    ),
    _choice("TORCH_OPENREG_AUTOLOAD", ("1", "0", "strict"), "when the package is loaded", "torch_openreg/_loader.py"),
    Variable(
        "TORCH_OPENREG_FALLBACK",
        "policy",
        "silent",
        "what becomes of operators without a kernel of the device's own",
        "torch_openreg/openreg/fallback.py",
    ),
    _choice(
        "TORCH_OPENREG_LAUNCH_TRACEBACK",
        ("0", "1"),
        "whether a failure of queued work names the line of its launch",
        "torch_openreg/csrc/Module.cpp",
    ),
    Variable("TORCH_OPENREG_TRACE", "file", "", "where a trace is written", "torch_openreg/openreg/profiler.py"),
    _choice(
        "OCCL_TRANSPORT",
        ("auto", "shm"),
        "what collectives use",
        "csrc/distributed/EngineChoice.cpp",
    ),
    _choice("OCCL_CHECK", ("1", "0"), "whether ranks compare what they call", "third_party/openreg/csrc/occl/plan.cpp"),
    _choice(
        "OCCL_MULTI_RANK_GPU_ENABLE",
        ("0", "1"),
        "whether several ranks may use one device",
        "third_party/openreg/csrc/occl/plan.cpp",
    ),
    Variable(
        "OCCL_HOSTID",
        "text",
        "",
        "ranks with different values count as ranks of different hosts",
        "third_party/openreg/csrc/occl/communicator.cpp",
    ),
    Variable("TORCH_DEVICE_BACKEND_AUTOLOAD", "switch", "1", "whether PyTorch loads any backend at import", ""),
)


@functools.cache
def _of_parts() -> list[dict[str, Any]]:
    """What each file _variables.py of a sub-package defines. The files are run, once, and not imported."""
    import runpy

    folder = os.path.dirname(__file__)
    return [runpy.run_path(os.path.join(folder, name, "_variables.py")) for name in parts_with("_variables.py")]


def all_variables() -> tuple[Variable, ...]:
    """VARIABLES, and the rows of sub-packages. A row of a sub-package replaces the row of the same name."""
    rows = {row.name: row for row in VARIABLES}
    rows |= {row[0]: Variable(*row) for part in _of_parts() for row in part["VARIABLES"]}
    return tuple(rows.values())


def any_is_set(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a variable of the device or of the package is set. Most programs set none, and read no other table."""
    return any("OPENREG_" in name for name in environment)


def submodules_of_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """The submodules of torch_openreg.openreg that read the variables which are set, in the order of all_variables()."""
    found = []
    for variable in all_variables():
        folder, file = os.path.split(variable.reader)
        if variable.name in environment and os.path.basename(folder) == "openreg":
            found.append(file.removesuffix(".py"))
    return found


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Raises ValueError for the first variable whose value is none of its choices. Empty means unset.

    Does not check the variables that the device library checks when it starts, and a process group when it is made,
    because a program may set these variables until then.
    """
    for variable in all_variables() if any_is_set(environment) else VARIABLES:
        value = environment.get(variable.name)
        if value and variable.choices and not variable.reader.startswith(("third_party", "csrc/distributed")):
            variable.check(value)
    for part in _of_parts() if any_is_set(environment) else ():
        if "check" in part:
            part["check"](environment)
