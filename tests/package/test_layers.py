"""The files of csrc depend on each other in one direction.

A header and its source are one module. A module depends on what either of them includes. If two modules need each
other, nobody can read, replace or build one without the other.

The *core* is what a vendor keeps. It neither names nor needs the simulator, which a vendor deletes.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable
from graphlib import TopologicalSorter
from pathlib import Path

import programs
import pytest
from environments import build_tool
from simulator_words import named

ROOT = Path(__file__).parents[2]
CSRC = ROOT / "csrc"
RUNTIME = CSRC / "runtime"
OPERATORS = CSRC / "aten"
BINDINGS = ROOT / "torch_openreg" / "csrc"
CORE = ("runtime", "aten", "amp", "graph", "profiler", "distributed")
BUILD = ROOT / os.environ.get("SKBUILD_BUILD_DIR", f"build/{Path(sys.prefix).name}")

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
                included.add(module(CSRC / name))
            included.discard(module(path))
    return graph


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
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the files of a circle


def cpp_files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.suffix in (".h", ".cpp")]


@pytest.mark.parametrize(
    "folder", ["csrc", "torch_openreg/csrc", "torch_openreg/_cuda/csrc", "third_party/openreg/csrc"]
)
def test_an_include_names_the_path_from_the_root(folder: str) -> None:
    if not (ROOT / folder).exists():
        pytest.skip("the folder was deleted")
    roots = [ROOT / folder, CSRC, ROOT / "third_party/openreg/include"]
    files = cpp_files(ROOT / folder)
    assert len(files) > 2
    includes = [(file.name, name) for file in files for name in INCLUDE.findall(file.read_text())]
    assert [each for each in includes if not any((root / each[1]).is_file() for root in roots)] == []


REGISTERS = re.compile(r"\bTORCH_LIBRARY_IMPL\(|\bLibrary::IMPL\b|^void register_\w+\(torch::Library& m\) \{", re.M)


def test_a_file_has_the_prefix_openreg_if_it_is_of_the_runtime_or_registers_operators() -> None:
    """PyTorch's files of CUDA have the prefix CUDA in c10/cuda, and so have ours in csrc/runtime."""
    files = cpp_files(CSRC)
    prefixed = {path.relative_to(CSRC) for path in files if path.name.startswith("OpenReg")}
    assert {path.relative_to(CSRC) for path in cpp_files(RUNTIME)} <= prefixed
    registering = {path.relative_to(CSRC).with_suffix("") for path in files if REGISTERS.search(path.read_text())}
    others = {path.with_suffix("") for path in prefixed if path.parts[0] != "runtime"}
    assert others - registering == set()


# ---- the names of types

COMMENT_OR_STRING = re.compile(r"//[^\n]*|/\*.*?\*/" r'|"(?:\\.|[^"\\\n])*"', re.S)
TYPE = re.compile(
    r"\b(?:class|struct|union|enum(?: class)?) (?:[A-Z_]+ |\[\[\w+\]\] )*(\w+)(?: final)?(?: ?:[^:;{][^;{]*)? \{"
    r"|\busing (\w+) =\s*([^;]+);"
)


def defined_types(text: str) -> list[tuple[str, str]]:
    """The names of the types that a source defines. The second part is what an alias stands for, or empty."""
    code = COMMENT_OR_STRING.sub("", text)
    return [(match[1] or match[2], match[3] or "") for match in TYPE.finditer(code)]


def test_two_types_have_two_names() -> None:
    """A reader who looks for a type by its name finds one. An alias may have the name of the type that it stands for."""
    targets: dict[str, set[str]] = {}
    folders = ("csrc", "torch_openreg/csrc", "torch_openreg/_cuda/csrc", "third_party/openreg")
    for path in [path for folder in folders for path in cpp_files(ROOT / folder)]:
        for name, target in defined_types(path.read_text()):
            is_short_for = re.search(rf"\b{name}(?:<.*>)?$", target, re.S)
            if not is_short_for and name[0].isupper() and len(name) > 1:  # `T` and `type` are names within templates
                targets.setdefault(name, set()).add(target or path.relative_to(ROOT).as_posix())
    assert len(targets) > 100
    assert {name: found for name, found in targets.items() if len(found) > 1} == {}


def test_the_search_for_types_finds_classes_and_aliases() -> None:
    source = """
        class Declared;
        class OPENREG_API Stream final : public Base { struct Part { int x; }; };
        enum class Kind : uint8_t { a };  // struct Comment {
        using Result = std::vector<Part>;
        template <class T> struct Box {};
    """
    assert defined_types(source) == [
        ("Stream", ""),
        ("Part", ""),
        ("Kind", ""),
        ("Result", "std::vector<Part>"),
        ("Box", ""),
    ]


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


# ---- the core and the simulator


def test_the_core_names_nothing_that_only_a_simulation_has() -> None:
    files = [path for name in CORE for path in sorted((CSRC / name).rglob("*")) if path.is_file()]
    files += [path for path in sorted(BINDINGS.iterdir()) if path.is_file()]
    assert len(files) > 80
    found = {path.relative_to(ROOT).as_posix(): named(path.read_text()) for path in files}
    assert {name: words for name, words in found.items() if words} == {}


def test_the_search_for_names_finds_parts_of_identifiers_and_no_other_words() -> None:
    assert named("bool meets_fault(); // a RedZone") == {"fault", "RedZone"}
    assert named("orMemcpyDefault, PYTORCH_DEFAULT, build_borrowing_binary_op, device_models.h") == {"device_model"}


def test_the_core_includes_nothing_of_the_simulator() -> None:
    graph = dependencies(CSRC)
    core = {name for name in graph if name.startswith(CORE)}
    assert {name for name in needed_by(core, graph) if not name.startswith(CORE)} == set()


def test_the_core_of_the_bindings_includes_nothing_of_the_simulator() -> None:
    files = [path for path in BINDINGS.iterdir() if path.is_file()]
    included = {name for path in files for name in INCLUDE.findall(path.read_text())}
    assert len(included) > 10 and not [name for name in included if name.startswith("simulator/")]


def symbols(files: Iterable[Path], defined: bool) -> set[str]:
    """The functions and variables that object files define, without inline functions, or that they need."""
    lines = programs.run(
        "nm", "--defined-only" if defined else "--undefined-only", "--no-sort", *files, status=0
    ).stdout.splitlines()
    return {line.split()[-1] for line in lines if re.search(r" [BDRT] _Z" if defined else r" U _Z", line)}


def test_no_object_of_the_core_needs_a_symbol_of_the_simulator() -> None:
    if not (BUILD / "CMakeCache.txt").exists():
        pytest.skip("the project was not built in this folder")
    programs.run(*build_tool("cmake"), "--build", BUILD, "--target", "torch_openreg", status=0)
    # The build's own list: an object in the folder may be left from a source that is gone.
    compiled = json.loads(programs.run(*build_tool("ninja"), "-C", BUILD, "-t", "compdb", status=0).stdout)
    objects: dict[Path, list[str]] = {}  # an object is of one source, or of all sources of a folder
    for step in compiled:
        name, source = step["output"], Path(step["file"])
        if name.endswith((".cpp.o", ".cxx.o")) and not name.startswith("torch_openreg/_cuda/"):
            objects[BUILD / name] = INCLUDE.findall(source.read_text()) if source.suffix == ".cxx" else [str(source)]

    def is_simulator(path: str | Path, root: Path) -> bool:
        return "simulator" in str(Path(path).relative_to(root))

    core = [path for path in objects if not is_simulator(path, BUILD)]
    simulator = [path for path in objects if is_simulator(path, BUILD)]
    assert all(is_simulator(file, ROOT) == (path in simulator) for path, files in objects.items() for file in files)
    assert sum(len(objects[path]) for path in core) > 80 and sum(len(objects[path]) for path in simulator) > 50
    assert symbols(core, False) & (symbols(simulator, True) - symbols(core, True)) == set()
