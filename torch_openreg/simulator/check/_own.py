"""Which files belong to the checked program, and not to Python, a library or this package."""

import importlib.util
import os
import sysconfig


def _folders() -> tuple[str, ...]:
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for name in ("torch", "torch_openreg"):
        spec = importlib.util.find_spec(name)
        found |= {str(spec.submodule_search_locations[0])} if spec and spec.submodule_search_locations else set()
    found.add(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))  # an editable install has two folders
    return tuple(os.path.join(folder, "") for folder in found)


_LIBRARIES = (*_folders(), "<")


def is_own(file: str) -> bool:
    return not file.startswith(_LIBRARIES) and os.path.basename(file) != "_zygote.py"
