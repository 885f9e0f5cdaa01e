"""Makes the sections of the API reference from the public names of the modules of torch.openreg."""

from __future__ import annotations

import importlib
from pathlib import Path

import generated

HOME = "torch_openreg.openreg"
# Section -> the submodule with its names. The names of torch.openreg itself have no submodule.
SECTIONS = {"device": "", "streams": "streams", "execution": "execution", "memory": "memory", "random": "random"}
# Modules that have a section of their own. Most of their functions are reached through the module only.
QUALIFIED = ("fallback", "sanitizer", "amp", "nvtx", "profiler", "faults", "models", "dry")
# The functions of torch.openreg.memory that have a leading underscore and are in the reference all the same.
UNDERSCORED = (
    "_record_memory_history",
    "_snapshot",
    "_dump_snapshot",
    "_allocation_traceback",
    "_set_memory_metadata",
    "_get_memory_metadata",
    "_attach_out_of_memory_observer",
)


def _entry(name: str, value: object) -> str:
    if isinstance(value, type):
        return f".. autoclass:: {name}\n   :members:\n"
    return f".. autofunction:: {name}\n"


def sections() -> dict[str, str]:
    """Section -> its text, in reStructuredText."""
    package, _names = importlib.import_module(HOME), importlib.import_module(f"{HOME}._names")
    elsewhere = {name for names in _names.SUBMODULES.values() for name in names} | set(_names.SUBMODULES)
    written = {}
    for section, submodule in SECTIONS.items():
        names = _names.SUBMODULES[submodule] if submodule else [n for n in package.__all__ if n not in elsewhere]
        entries = [
            _entry(f"torch.openreg.{name}", getattr(package, name))
            for name in names
            if not name.startswith("_") and callable(getattr(package, name))
        ]
        if section == "memory":
            entries += [".. autofunction:: torch.openreg.ipc_collect\n"]
            entries += [f".. autofunction:: torch.openreg.memory.{name}\n" for name in UNDERSCORED]
        written[section] = "\n".join(entries)
    for submodule in QUALIFIED:
        module = importlib.import_module(f"{HOME}.{submodule}")
        own = [name for name in module.__all__ if getattr(getattr(module, name), "__module__", "") == module.__name__]
        # Functions that torch.openreg itself has too, as torch.cuda has those of its submodules.
        above = _names.SUBMODULES[submodule]
        names = {
            name: f"torch.openreg.{name}" if name in above else f"torch.openreg.{submodule}.{name}" for name in own
        }
        written[submodule] = "\n".join(_entry(names[name], getattr(module, name)) for name in own)
    types = _names.SUBMODULES["_tensor_types"]
    written["types"] = "\n".join(
        f".. py:class:: torch.openreg.{n}\n\n   {getattr(package, n).__doc__}\n" for n in types
    )
    return written


def write_all(folder: Path) -> None:
    """Writes each section to a file. The pages of the reference include these files."""
    for section, text in sections().items():
        generated.write(folder / f"{section}.txt", text)
