"""Every environment variable of the device and of the package, in the table VARIABLES.

The table does not have variables of other programs that the code also reads, such as RANK and NO_COLOR. The variables
in _AT_IMPORT, which have a few possible values, are checked here, at ``import torch``, so all bad values give an error
of the same form. The others are checked by torch_openreg._loader at ``import torch``, or by the file that reads the
variable (``Variable.reader``).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from typing import NamedTuple


@functools.cache
def parts_with(file: str) -> tuple[str, ...]:
    """The names of the sub-packages that have this file: what can be deleted is found, and not named."""
    folder = os.path.dirname(__file__)
    names = os.listdir(folder) if os.path.isdir(folder) else ()  # a package in an archive has no folder
    return tuple(sorted(name for name in names if os.path.exists(os.path.join(folder, name, file))))


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


# Internal: the file descriptors through which a fork server of the pytest plugin talks to its parent process.
FORK_SERVER = "_TORCH_OPENREG_FORK_SERVER"

_DEVICE = "third_party/openreg/csrc/environment.cpp"
_ALLOCATOR = "csrc/runtime/memory/OpenRegAllocatorConfig.cpp"

VARIABLES: tuple[Variable, ...] = (
    # The device.
    Variable(
        "OPENREG_MODEL", "name", "", "the accelerator that the devices stand for", "torch_openreg/openreg/models.py"
    ),
    Variable("OPENREG_DEVICE_COUNT", "number", "2, or the model's", "the number of devices", _DEVICE),
    Variable("OPENREG_DEVICE_MEMORY", "size", "16G, or the model's", "the bytes of each device", _DEVICE),
    Variable("OPENREG_VISIBLE_DEVICES", "list", "all", "the devices that the process may use", _DEVICE),
    _choice("OPENREG_EXECUTION", ("inline", "async", "chaos"), "when queued work runs", _DEVICE),
    Variable("OPENREG_CHAOS_SEED", "number", "0", "the seed of the delays in the mode chaos", _DEVICE),
    _choice("OPENREG_POISON", ("0", "1"), "whether free memory holds NaN", "csrc/simulator/Poison.cpp"),
    Variable("OPENREG_FAULTS", "program", "", "what goes wrong on purpose", "torch_openreg/openreg/faults.py"),
    Variable(
        "OPENREG_SANITIZER",
        "choices",
        "",
        "what the sanitizer looks for",
        "torch_openreg/openreg/sanitizer.py",
        ("race", "init", "memory", "leak"),
    ),
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
        "TORCH_OPENREG_AUTOGRAD_THREADS",
        ("0", "1"),
        "whether backward runs on autograd's threads",
        "csrc/simulator/borrowed/OpenMPTeam.cpp",
    ),
    _choice(
        "OCCL_TRANSPORT",
        ("auto", "gloo", "shm"),
        "what collectives use",
        "csrc/distributed/EngineChoice.cpp",
    ),
    _choice("OCCL_CHECK", ("1", "0"), "whether ranks compare what they call", "third_party/openreg/csrc/occl/plan.cpp"),
    Variable(
        "OCCL_HOSTID",
        "text",
        "",
        "ranks with different values count as ranks of different hosts",
        "third_party/openreg/csrc/occl/communicator.cpp",
    ),
    Variable("TORCH_DEVICE_BACKEND_AUTOLOAD", "switch", "1", "whether PyTorch loads any backend at import", ""),
)


def all_variables() -> tuple[Variable, ...]:
    """VARIABLES, and the rows that sub-packages add in a file _variables.py, which is read and not imported."""
    import runpy

    folder = os.path.dirname(__file__)
    files = [runpy.run_path(os.path.join(folder, name, "_variables.py")) for name in parts_with("_variables.py")]
    return VARIABLES + tuple(Variable(*row) for file in files for row in file["VARIABLES"])


# The variables that are checked at import. The device checks its own variables when it starts, and a process group
# checks its own when it is made, because a program may set these variables until then.
_AT_IMPORT = tuple(
    variable
    for variable in VARIABLES
    if variable.choices and not variable.reader.startswith(("third_party", "csrc/distributed"))
)


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Raises ValueError for the first variable of _AT_IMPORT whose value is none of its choices. Empty means unset."""
    for variable in _AT_IMPORT:
        if value := environment.get(variable.name):
            variable.check(value)
