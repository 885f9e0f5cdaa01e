"""A type checker knows torch.openreg: as `from torch_openreg import openreg`, with the exact types."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from pathlib import Path
from types import ModuleType

import programs
import pytest
from environments import Environment

from torch_openreg._environment import parts_with
from torch_openreg.openreg import _names

# The names that sub-packages add.
ADDED = [importlib.import_module(f"torch_openreg.{part}._public_names") for part in parts_with("_public_names.py")]
# Expression -> its type as mypy prints it.
REVEALED = {
    "openreg.memory_allocated": "def (device: int | str | torch._C.device | None =) -> int",
    "openreg.mem_get_info('openreg:1')": "tuple[int, int]",
    "openreg.memory.memory_stats()": "collections.OrderedDict[str, Any]",
    "openreg.get_device_properties(0).total_memory": "int",
    "openreg.current_stream()": "torch._C.Stream",
    "openreg.default_generators": "tuple[torch._C.Generator, ...]",
    "openreg.random.get_rng_state()": "torch._tensor.Tensor",
    "openreg.fallback.counts()": "dict[str, int]",
    "openreg.is_available()": "bool",
    "torch_openreg.openreg.ipc_collect": "def ()",
    "torch_openreg.__version__": "str",
    "torch_openreg.include_paths()": "list[str]",
}
# Statement -> the error that mypy has for it.
REFUSED = {
    "openreg.memory_alocated()": 'Module has no attribute "memory_alocated"  [attr-defined]',
    "torch_openreg.nothing": 'Module has no attribute "nothing"  [attr-defined]',
    "size: str = openreg.memory_allocated()": "Incompatible types in assignment "
    '(expression has type "int", variable has type "str")  [assignment]',
}


@pytest.mark.slow
def test_a_type_checker_knows_the_types_of_a_users_script(shared_environment: Environment, tmp_path: Path) -> None:
    lines = ["import torch_openreg", "from torch_openreg import openreg"]
    expected = []
    for expression, type_ in REVEALED.items():
        lines.append(f"reveal_type({expression})")
        expected.append(f'script.py:{len(lines)}: note: Revealed type is "{type_}"')
    for statement, error in REFUSED.items():
        lines.append(statement)
        expected.append(f"script.py:{len(lines)}: error: {error}")
    (tmp_path / "script.py").write_text("\n".join(lines) + "\n")
    # mypy reads the modules of torch and of this package, but reports no errors that --strict finds in them.
    options = ["--strict", "--follow-imports=silent", "--no-error-summary", "--cache-dir=/dev/null"]
    command = [sys.executable, "-m", "mypy", "--python-executable", shared_environment.python, *options, "script.py"]
    result = programs.run(*command, cwd=tmp_path)
    # Some versions of mypy guess which name was meant.
    assert re.sub(r'; maybe "\w+"\?', "", result.stdout).splitlines() == expected, result.stderr


@pytest.mark.parametrize("module", [_names, *ADDED], ids=lambda module: module.__name__)
def test_python_and_type_checkers_find_a_name_in_the_same_submodule(module: ModuleType) -> None:
    found = set()
    for node in ast.parse(Path(str(module.__file__)).with_suffix(".pyi").read_text()).body:
        if not isinstance(node, ast.ImportFrom) or node.names[0].name == "*":  # the star: what sub-packages add
            continue
        assert node.level == 1
        submodule = ".".join(filter(None, (node.module or "").split(".")[1 if module in ADDED else 0 :])) or None
        for name in node.names:
            assert name.asname == name.name, "only an import `as` itself can be imported again"
            found.add((submodule, name.name))
    added = {name for each in ADDED for name in each.SUBMODULES}
    own = {name: names for name, names in module.SUBMODULES.items() if module in ADDED or name not in added}
    submodules = {(None, name) for name in own if not name.startswith("_")}
    assert found == submodules | {(submodule, name) for submodule, names in own.items() for name in names}


def test_a_name_that_a_submodule_gives_to_the_device_is_in_its_own_list() -> None:
    for submodule, names in _names.SUBMODULES.items():
        owned = importlib.import_module(f"torch_openreg.openreg.{submodule}").__all__
        # Some names of amp and models are in the submodule only. The other submodules give all names to the device.
        wanted = [name for name in owned if name in names] if submodule in ("amp", "models") else owned
        assert not names or tuple(wanted) == names, submodule
