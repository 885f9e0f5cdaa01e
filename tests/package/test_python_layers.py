"""The files of torch_openreg import each other in one direction: no circle, and the commands above everything else.

What a sub-package adds is found, so the core neither imports nor names torch_openreg/simulator.

Imports within functions count too. They decide only when a file is imported, and not what it needs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

from simulator_words import named

PACKAGE = Path(__file__).parents[2] / "torch_openreg"


def module(path: Path) -> str:
    """The name that the file has in programs: a sub-package's folder openreg adds submodules to torch_openreg.openreg."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    if parts[1:3] == ("simulator", "openreg"):
        parts = (parts[0], *parts[2:])
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


# `from torch_openreg import _C` takes a compiled module, and nothing of __init__.py.
MADE_BY_THE_BUILD = ("_C", "_build_info")
FILES = {module(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported(name: str) -> Iterator[str]:
    """The modules that a module imports anywhere in its file. ``from package import module`` imports the module.

    Not the packages around what is imported: their own files import nothing of it, or this test finds the circle.
    """
    for node in ast.walk(ast.parse(FILES[name].read_text())):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in FILES)
        elif isinstance(node, ast.ImportFrom):
            package = name if FILES[name].name == "__init__.py" else name.rpartition(".")[0]
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for each in node.names:
                found = [full for full in (f"{base}.{each.name}", base) if full in FILES]
                yield from found[:1] if each.name not in MADE_BY_THE_BUILD else ()


GRAPH = {name: {each for each in imported(name) if each != name} for name in FILES}


def test_no_two_python_files_need_each_other() -> None:
    assert len(GRAPH) > 40 and sum(map(len, GRAPH.values())) > 80
    TopologicalSorter(GRAPH).prepare()  # raises CycleError, which names the files of a circle


def test_only_the_commands_import_the_commands() -> None:
    commands = ("torch_openreg._cli", "torch_openreg.simulator._cli")
    above = {name for name, needed in GRAPH.items() if any(each.startswith(commands) for each in needed)}
    assert {name for name in above if not name.startswith(commands)} == {"torch_openreg.__main__"}


def test_the_core_imports_nothing_of_a_folder_that_may_be_deleted() -> None:
    deletable = {name for name, path in FILES.items() if {"simulator", "_cuda"} & {*path.relative_to(PACKAGE).parts}}
    core = {name: needed for name, needed in GRAPH.items() if name not in deletable}
    assert len(core) > 30
    assert [(name, each) for name, needed in core.items() for each in needed & deletable] == []


def test_a_submodule_of_openreg_has_one_name() -> None:
    """Python makes a second module, with variables of its own, of a file that is imported under another name."""
    assert "torch_openreg.openreg._dry_weights" in FILES and "torch_openreg.openreg.dry" in FILES
    second = re.compile(r"torch_openreg\.simulator\.openreg\b")
    assert [name for name, path in FILES.items() if second.search(path.read_text())] == []


def test_the_core_names_nothing_that_only_a_simulation_has() -> None:
    parts = {"simulator", "_cuda", "__pycache__"}
    files = [*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.pyi"), *PACKAGE.parent.glob("torch_openreg_*.py")]
    core = [path for path in files if not parts & {*path.relative_to(PACKAGE.parent).parts}]
    assert len(core) > 40
    found = {path.relative_to(PACKAGE.parent).as_posix(): named(path.read_text()) for path in core}
    assert {name: words for name, words in found.items() if words} == {
        "torch_openreg/openreg/_names.pyi": {"simulator"}  # for type checkers, which do not search
    }


def test_the_package_imports_no_other_part_of_the_project() -> None:
    folders = {path.name for path in PACKAGE.parent.iterdir() if path.is_dir() and path != PACKAGE}
    for name, path in FILES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            taken = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            taken += [node.module] if isinstance(node, ast.ImportFrom) and node.module and not node.level else []
            assert not {each.split(".")[0] for each in taken} & folders, name
