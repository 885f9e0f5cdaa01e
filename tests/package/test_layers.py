"""The files of csrc depend on each other in one direction.

A header and its source are one module. A module depends on what either of them includes. If two modules need each
other, nobody can read, replace or build one without the other.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
RUNTIME = CSRC / "runtime"
OPERATORS = CSRC / "aten"

INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def module(path: Path) -> str:
    return path.relative_to(CSRC).with_suffix("").as_posix()


def dependencies(folder: Path) -> dict[str, set[str]]:
    """The modules of this project that each module of ``folder`` includes."""
    graph: dict[str, set[str]] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".h", ".cpp"):
            included = graph.setdefault(module(path), set())
            for name in INCLUDE.findall(path.read_text()):
                target = next(found for base in (path.parent, CSRC) if (found := (base / name).resolve()).exists())
                included.add(module(target))
            included.discard(module(path))
    return graph


def loop(graph: dict[str, set[str]]) -> list[str]:
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1]
    return []


def needed_by(names: set[str], graph: dict[str, set[str]]) -> set[str]:
    """The modules that ``names`` need, directly or through others, and ``names`` themselves."""
    needed: set[str] = set()
    new = names
    while new:
        needed |= new
        new = {name for each in new for name in graph.get(each, ())} - needed
    return needed


def test_no_two_files_need_each_other() -> None:
    graph = dependencies(CSRC)
    assert len(graph) > 50
    assert loop(graph) == []


def test_an_include_names_the_path_from_the_root() -> None:
    files = [file for folder in ("csrc", "torch_openreg/csrc") for file in (ROOT / folder).rglob("*.[ch]*")]
    assert [(file.name, name) for file in files for name in INCLUDE.findall(file.read_text()) if ".." in name] == []


def test_the_runtime_needs_nothing_else_of_csrc() -> None:
    graph = dependencies(RUNTIME)
    assert {name for name in needed_by(set(graph), graph) if not name.startswith("runtime/")} == set()


def test_operators_need_the_runtime_only_and_their_kernels_do_not_need_the_registrations() -> None:
    graph = dependencies(OPERATORS)
    assert {name for name in needed_by(set(graph), graph) if not name.startswith(("aten/", "runtime/"))} == set()
    kernels = {name for name in graph if name.startswith("aten/native/")}
    assert len(kernels) > 10
    assert {name for name in needed_by(kernels, graph) if not name.startswith(("aten/native/", "runtime/"))} == set()


def test_the_memory_of_a_device_needs_neither_storages_nor_the_sharing_of_them() -> None:
    graph = dependencies(RUNTIME)
    needed = needed_by({name for name in graph if name.startswith("runtime/memory/")}, graph)
    assert needed & {"runtime/OpenRegStorage", "runtime/OpenRegSharing", "runtime/OpenRegKernel"} == set()


def test_the_check_finds_a_loop_of_three_modules() -> None:
    assert loop({"allocator": {"sharing"}, "sharing": {"storage"}, "storage": {"allocator"}})
