"""``python -m torch_openreg new NAME``: what it writes, and which names it takes. Nothing is compiled here.

``python -m tests.package.build_new_backend`` (``make new-backend``) builds and tests what is written.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import sys
from pathlib import Path

import programs
import pytest
import yaml
from environments import Environment
from programs import Done

ROOT = Path(__file__).parents[2]

sys.path.insert(0, str(ROOT))
from new_backend import archive, naming, parts, writing  # noqa: E402

# One name begins with a vowel. The other does not, and has two parts.
NAMES = ("acme", "bolt_chip")
ACKNOWLEDGEMENT = {
    "LICENSE": ["Copyright (c) 2026, torch_openreg developers"],
    "README.md": ["[torch_openreg](UPSTREAM.md)"],
    "UPSTREAM.md": [
        "torch_openreg new",
        "from torch_openreg",
        "those of torch_openreg",
        "the newer torch_openreg",
        "With torch_openreg",
        "-m torch_openreg conformance",
    ],  # fmt: skip,
}


def new(*arguments: str | Path, folder: Path) -> Done:
    """Runs the program that the command `new` starts in a new interpreter."""
    return programs.run(sys.executable, ROOT / "new_backend" / "__main__.py", *arguments, cwd=folder)


# For what does not depend on the name.
with_one_name = pytest.mark.parametrize("project", NAMES[:1], indirect=True)


@pytest.fixture(scope="module", params=[NAMES[0], pytest.param(NAMES[1], marks=pytest.mark.slow)])
def project(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A whole new backend: its name and its folder."""
    output = tmp_path_factory.mktemp("new") / "project"
    result = new(request.param, "--output", output, folder=output.parent)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    assert result.stdout.splitlines()[-1] == (
        f"  cd {output} && git init && make format && git add -A && git commit -m start && make demo && make test"
    )
    return request.param, output


def files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file() or path.is_symlink()]


# ---- The whole project -----------------------------------------------------------------------------------------------


def test_nothing_says_openreg_except_the_acknowledgement(project: tuple[str, Path]) -> None:
    _, folder = project
    names = re.compile(r"(?i:openreg|occl\b)|\bor[A-Z][a-z]")
    for path in files(folder):
        name = path.relative_to(folder).as_posix()
        assert not names.search(name) and not names.search(os.readlink(path) if path.is_symlink() else ""), name
        text = path.read_text()
        for phrase in ACKNOWLEDGEMENT.get(name, ()):
            assert phrase in text, name
            text = text.replace(phrase, "")
        assert not names.search(text), f"{name}: {names.search(text)}"
    assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()


def test_there_are_no_marks_and_nothing_of_what_only_this_project_has(project: tuple[str, Path]) -> None:
    _, folder = project
    only_here = re.compile(
        r"LITERALINCLUDE|_C_cuda"
        r"|\{\{(name|version)\}\}|(?<!pytorch\.org/)docs/|\"docs\"|(?<!-)benchmarks|make (bench|docs|look|fuzz)"
        r"|\brelease/|tests/tools/mutants"
    )
    for path in files(folder):
        if path.relative_to(folder).parts[0] not in (
            "README.md",
            "UPSTREAM.md",
            "conformance",  # the kit names the chapters of this project's book
        ):
            found = only_here.search(path.read_text())
            assert not found, f"{path.relative_to(folder)}: {found}"
    there = {path.name for path in folder.iterdir()}
    assert not there & {"docs", "benchmarks", "new_backend"}
    assert {".ci", "CMakeLists.txt", "LICENSE", "Makefile", "UPSTREAM.md", "csrc", "tests", "third_party"} <= there


def test_its_makefile_names_only_what_is_there(project: tuple[str, Path]) -> None:
    folder = project[1]
    words = (folder / "Makefile").read_text().split()
    paths = {word for word in words if re.fullmatch(r"[.\w]+(/[.\w]+)+", word)}
    assert "tests/device_library/stress" in paths
    assert {path for path in paths if not (folder / path).exists()} == set()


def test_the_paths_that_its_pages_name_are_there(project: tuple[str, Path]) -> None:
    name, folder = project
    for page in ("README.md", "CONTRIBUTING.md"):
        paths = re.findall(rf"`((?:csrc|tests|third_party|torch_{name})(?:/[\w.]+)*)`", (folder / page).read_text())
        assert len(paths) >= 5 and [path for path in paths if not (folder / path).exists()] == []


def test_pytorchs_relay_starts_its_workflow_and_hears_the_result(project: tuple[str, Path], tmp_path: Path) -> None:
    name, folder = project
    text = (folder / ".github/workflows/pytorch_ci.yml").read_text()
    workflow = yaml.safe_load(text)
    assert workflow[True]["repository_dispatch"] == {"types": ["pull_request", "push"]}  # YAML reads "on" as true
    begin, test, end = (workflow["jobs"][job] for job in ("begin", "test", "end"))
    # A pull request's code runs in `test` only, which may not ask for a token.
    assert (workflow["permissions"], test["permissions"]) == ({}, {"contents": "read"})
    assert begin["permissions"] == end["permissions"] == {"id-token": "write"}
    assert [[*step] for step in (*begin["steps"], *end["steps"])] == [["uses", "continue-on-error", "with"]] * 2
    assert [job["steps"][0]["with"]["status"] for job in (begin, end)] == ["in_progress", "completed"]
    assert {job["steps"][0]["with"]["job-name"] for job in (begin, end)} == {"test"}
    assert test["timeout-minutes"] < 180
    commands = "\n".join(step.get("run", "") for step in test["steps"])
    option = f"{naming.words(name)[2]}_DEVICE_LIBRARY"
    assert f"-D{option}=" in commands and f"set({option} " in (folder / "cmake/DeviceLibrary.cmake").read_text()
    assert f"--device {name} " in commands and test["env"]["PYTORCH_TESTING_DEVICE_ONLY_FOR"] == name
    assert "${{" not in commands  # what an event says is no part of a command
    results = "<testsuites><testcase/><testcase><failure/></testcase><testcase><skipped/></testcase></testsuites>"
    (tmp_path / "kit.xml").write_text(results)
    (count,) = re.findall(r"<<'END' [^\n]*\n(.*)^END$", commands, re.MULTILINE | re.DOTALL)
    counted = programs.run(sys.executable, "-c", count, cwd=tmp_path, status=0).stdout
    assert counted == 'results={"passed": 1, "failed": 1, "skipped": 1, "total": 3}\n'


def test_formatting_needs_no_build(project: tuple[str, Path]) -> None:
    result = programs.run("make", "-n", "format", cwd=project[1], MAKEFLAGS="", status=0)
    installs = [line.split("pip install ")[1] for line in result.stdout.splitlines() if "pip install " in line]
    assert re.fullmatch(r"ruff clang-format==[\d.]+", installs[-1]), installs
    assert not any("-e ." in line for line in installs)


def test_each_kind_of_name_is_replaced_by_a_name_of_that_kind(project: tuple[str, Path]) -> None:
    name, folder = project
    camel, upper, c_prefix = naming.words(name)[1:]
    assert (folder / f"third_party/{name}/include/{name}.h").exists()
    assert f"{c_prefix}Error_t {c_prefix}Malloc(" in (folder / f"third_party/{name}/include/{name}.h").read_text()
    guard = (folder / f"csrc/runtime/{camel}Guard.cpp").read_text()
    assert f"namespace c10::{name}" in guard
    assert "TORCH_LIBRARY_IMPL(aten, PrivateUse1, m)" in (folder / f"csrc/aten/{camel}Minimal.cpp").read_text()
    assert f"{upper}_DEVICE_COUNT" in "".join(path.read_text() for path in files(folder / "third_party"))
    collectives = f"{upper.replace('_', '')}CCL"
    assert f" ProcessGroup{collectives} " in (folder / f"csrc/distributed/ProcessGroup{collectives}.h").read_text()
    assert f" `{collectives}_`. " in (folder / "README.md").read_text()
    pyproject = (folder / "pyproject.toml").read_text()
    assert f'torch_{name} = "torch_{name}_autoload:_autoload"' in pyproject
    assert f'torch-{name.replace("_", "-")} = "torch_{name}._cli:main"' in pyproject
    # A mangled name has the length of the name.
    assert (
        f"_ZN2at{len(name)}{name}7missingEi" in (folder / "tests/support/plugins/torch_undefined/library.c").read_text()
    )
    article = "an" if name == "acme" else "a"
    assert f'one: str = "{article} {name} device"' in (folder / f"torch_{name}/_identity.py").read_text()
    assert (folder / "examples/train_digits.py").resolve() == folder / f"torch_{name}/_cli/train_digits.py"
    assert os.access(folder / ".ci/run", os.X_OK)


@pytest.mark.slow
def test_every_python_file_parses_and_imports_only_what_is_there(project: tuple[str, Path]) -> None:
    name, folder = project
    homes = ("", "docs", *(path.relative_to(ROOT) for path in (ROOT / "tests").iterdir() if path.is_dir()))
    here, there = ({path.stem for home in homes for path in (root / home).glob("*")} for root in (ROOT, folder))
    gone = here - there
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for module in modules:
                assert module.split(".")[0] not in gone, f"{path}: {module}"
                package, _, inside = module.partition(".")
                if package == f"torch_{name}" and inside != "_C":
                    places = [folder / package / inside.replace(".", "/")]
                    if inside.startswith(f"{name}."):  # the sub-packages, such as simulator, add submodules to these
                        places += (folder / package).glob(f"*/{inside.replace('.', '/')}.py")
                    assert any(
                        place.is_dir() or place.with_suffix(".py").exists() or place.with_suffix(".pyi").exists()
                        for place in places
                    ), f"{path}: {module}"


def test_upstream_is_recorded(project: tuple[str, Path]) -> None:
    name, folder = project
    text = (folder / "UPSTREAM.md").read_text()
    assert f"`python -m torch_openreg new {name}` from torch_openreg {writing.upstream_version()}" in text


@with_one_name
def test_an_occupied_folder_is_left_alone(project: tuple[str, Path], tmp_path: Path) -> None:
    name, folder = project
    result = new(name, "--output", folder, folder=tmp_path)
    assert result.returncode == 1
    assert result.stderr == (
        f"torch-openreg new: {folder} is there already, and not an empty folder: nothing was written.\n"
    )


def test_every_file_that_is_left_out_exists_and_nothing_else_needs_to_be() -> None:
    assert [part for part in (*parts.FILES, *parts.LEFT_OUT) if not (ROOT / part).exists()] == []
    # Each test of this project is in a new backend, or named as left out.
    kept = {*parts.files(ROOT)}
    tests = {path.relative_to(ROOT) for path in (ROOT / "tests").glob("*/test_*.py")}
    assert [
        test for test in tests if str(test) not in kept | {*parts.LEFT_OUT} and str(test.parent) not in parts.LEFT_OUT
    ] == []


def test_a_new_backend_is_the_sources_under_other_names_and_nothing_else_differs(project: tuple[str, Path]) -> None:
    name, folder = project
    names = naming.full_table(name, parts.files(ROOT))
    renamed = re.compile(rf"(?i)openreg|occl|{name}|\bor(?=[A-Z])|\ban? ")
    compared = 0
    for file in parts.files(ROOT):
        if (ROOT / file).is_symlink() or file in parts.VERBATIM:
            continue
        source = [line for line in (ROOT / file).read_text().splitlines() if "LITERALINCLUDE" not in line]
        new_lines = (folder / names.rename(file)).read_text().splitlines()
        assert len(new_lines) == len(source), file
        for old, new_line in zip(source, new_lines, strict=True):
            if not renamed.search(old):
                assert new_line == old, file
                compared += 1
    assert compared > 20_000


def test_the_book_names_the_tests_of_the_first_day() -> None:
    from build_new_backend import FIRST_DAY_TESTS

    page = " ".join((ROOT / "docs/bring-up/new-backend.md").read_text().split())
    named = re.search(r"the first day runs eight files of them: ([^.]*\.py[^.]*)+\.", page)
    assert named and re.findall(r"`(tests/\w+/test_\w+\.py)`", named[0]) == [*FIRST_DAY_TESTS]
    kept = {*parts.files(ROOT)}
    assert {*FIRST_DAY_TESTS} <= kept


# ---- The chapter about it --------------------------------------------------------------------------------------------

CHAPTER = ROOT / "docs" / "bring-up" / "new-backend.md"


def rows(chapter: str, heading: str) -> list[list[str]]:
    """The cells of the rows of the table under a heading."""
    section = re.split(r"^#+ ", chapter.partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    table = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def paths_in(cell: str) -> list[str]:
    """The files and folders that a cell names. After "in `folder`:" the names are those of files in the folder."""
    whole, *inside = re.split(r"in `([\w/]+)`: ", cell)
    code = re.compile(r"`([\w./-]+)`")
    return [*code.findall(whole), *(f"{inside[0]}/{name}" for name in code.findall("".join(inside[1:])))]


def folder_rows(chapter: str) -> list[tuple[list[str], str]]:
    """The paths of each row of the table of folders, and the step. What a row says to delete is one of its paths."""
    return [
        ([path for cell in ([where, what] if verdict == "delete" else [where]) for path in paths_in(cell)], step)
        for where, verdict, what, step in rows(chapter, "Folder by folder")
    ]


def test_the_chapter_says_of_every_file_what_to_do_with_it() -> None:
    named = {path for paths, _ in folder_rows(CHAPTER.read_text()) for path in paths}
    there = {*parts.files(ROOT), *parts.files(ROOT / "new_backend" / "texts", ("",), ())}
    folders = {str(folder) for file in there for folder in Path(file).parents}
    assert sorted(named - there - folders) == []
    named |= {str(Path(path).with_suffix(".h")) for path in named if path.endswith(".cpp")}  # a source with its header
    assert sorted(file for file in there if not {file, *map(str, Path(file).parents)} & named) == []


@pytest.mark.slow
@with_one_name
def test_step_6_deletes_folders_and_leaves_no_line_that_names_what_is_gone(
    project: tuple[str, Path], tmp_path: Path
) -> None:
    name, original = project
    folder = tmp_path / "project"
    shutil.copytree(original, folder, symlinks=True)
    (command,) = re.findall(r"^ *(find .*-name simulator.*)$", CHAPTER.read_text(), re.MULTILINE)
    result = programs.run("bash", "-c", command.replace("torch_acme", f"torch_{name}"), cwd=folder)
    assert (result.returncode, result.stderr) == (0, "")
    kept, former = {*files(folder)}, {folder / path.relative_to(original) for path in files(original)}
    gone = {path.relative_to(folder) for path in former - kept}
    assert {path.parts[0] for path in gone} == {"csrc", "tests", "third_party", f"torch_{name}"}
    assert all("simulator" in path.parts for path in gone) and len(gone) > 150

    # Nothing imports, includes or compiles a file that is gone. The tests name a module to type checkers only.
    modules = {path.with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".") for path in gone}
    headers = {
        Path(path.as_posix().rpartition("csrc/")[2]) for path in gone if path.suffix == ".h" and "csrc" in path.parts
    }
    headers |= {Path(path.name) for path in gone if path.parts[-2:-1] == ("include",)}
    dangling = []
    for file in sorted(kept):
        where = file.relative_to(folder)
        if file.suffix in (".h", ".cpp"):
            included = {Path(each) for each in re.findall(r'^#include ["<]([^">]+)', file.read_text(), re.MULTILINE)}
            dangling += [(str(where), str(header)) for header in included & headers]
        for node in ast.walk(ast.parse(file.read_text())) if file.suffix == ".py" else ():
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.ImportFrom):
                home = [*where.parts[: -node.level]] if node.level else []
                module = ".".join([*home, *([node.module] if node.module else [])])
                names = [module, *(f"{module}.{each}" for each in names)]
            dangling += [(str(where), each) for each in names if each in modules]
    for_type_checkers = ("tests/support/programs.py", f"torch_{name}.simulator.check._server")
    assert dangling == [for_type_checkers]
    assert "if TYPE_CHECKING:" in (source := (folder / for_type_checkers[0]).read_text())
    assert source.partition("if TYPE_CHECKING:")[2].startswith(f"\n    from {for_type_checkers[1]} import ")

    # The tools that need no PyTorch work.
    for command in ("doctor", "memory", "trace"):
        module = (sys.executable, "-m", f"torch_{name}")
        programs.run(*module, command, "--help", cwd=folder, PYTHONPATH=str(folder), status=0, errors="")


# ---- The small ones --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "old"), [("minimal", "abacus"), ("python", "ledger")])
def test_a_small_backend_has_its_name_everywhere(kind: str, old: str, tmp_path: Path) -> None:
    result = new("acme", f"--{kind}", "--output", "project", folder=tmp_path)
    assert (result.returncode, result.stderr) == (0, ""), result.stderr
    folder = tmp_path / "project"
    there = {path.relative_to(folder).as_posix() for path in files(folder)}
    package = "src/torch_acme" if kind == "minimal" else "torch_acme"  # a package without C++ needs no installation
    assert {"LICENSE", "UPSTREAM.md", "README.md", "pyproject.toml", ".gitignore", f"{package}/__init__.py"} <= there
    assert "tests/test_acme.py" in there
    for path in files(folder):
        assert old not in (path.read_text() + path.as_posix()).lower(), path
        assert path.name in ("LICENSE", "UPSTREAM.md") or "openreg" not in path.read_text().lower(), path
    assert f"`python -m torch_openreg new acme --{kind}`" in (folder / "UPSTREAM.md").read_text()


def test_the_minimal_backend_is_small_and_says_where_the_hardware_comes_in() -> None:
    folder = ROOT / "examples" / "minimal_backend"
    sources = [path for path in files(folder) if path.suffix in (".cpp", ".h", ".py") and "tests" not in path.parts]
    lines = {path: sum("LITERALINCLUDE" not in line for line in path.read_text().splitlines()) for path in sources}
    assert sum(lines[path] for path in sources if not {"step2", "step3"} & {*path.parts}) <= 900
    assert sum(count for path, count in lines.items() if path.stem == "caching_allocator") <= 250
    marked = {path.name for path in sources if "HARDWARE: " in path.read_text()}
    assert marked == {"device.cpp", "backend.h", "backend.cpp", "generator.cpp", "queues.h", "abacus.py"}


# ---- Names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lambda", "'lambda' is a keyword of Python: `torch.lambda` could not be written."),
        ("match", "'match' is a keyword of Python: "),
        ("register", "'register' is a keyword of C++: `namespace c10::register` could not be written."),
        ("linux", "'linux' is a macro in C++ on Linux: `namespace c10::linux` could not be written."),
        ("my-chip", "'my-chip' cannot be the name of a module or of a C++ namespace: write my_chip."),
        ("Acme", "the names of PyTorch's devices are written in lower case: write acme."),
        ("npu2", "PyTorch reads 'npu2' in torch.device('npu2') up to the digit only: "),
        ("_acme", "'_acme' is no name for a device: "),
        ("a__b", "'a__b' is no name for a device: "),
        ("été", "'été' is no name for a device: "),
        ("", "'' is no name for a device: "),
        ("test", "'test' is the name of a target that CMake makes in each project."),
        ("openregs", "'openregs' contains a name of this project"),
        ("npu", "'npu' is the device of the published package torch_npu."),
        ("cuda", "'cuda' is a device of PyTorch already: torch.device('cuda') exists."),
        ("mps", "'mps' is a device of PyTorch already"),
        ("nn", "torch.nn exists already, and a device of this name would be found there."),
        ("expand", "torch.Tensor.expand exists already"),
        ("aten", "PyTorch has operators in the namespace 'aten' already."),
        ("dl", "'dl' is the name of a library of this system, libdl.so"),
        ("native", "PyTorch has a C++ namespace 'native' ("),
    ],
)
def test_a_name_that_cannot_be_taken_is_refused_with_the_reason(name: str, sentence: str) -> None:
    with pytest.raises(naming.BadName) as error:
        naming.check(name)
    assert str(error.value).startswith(sentence)


@pytest.mark.parametrize(
    ("name", "minimal"),
    [("py", False), ("native", False), ("register", False), ("linux", False), ("test", True), ("dl", True)],
)
def test_a_rule_holds_only_for_the_kinds_of_projects_that_have_its_reason(name: str, minimal: bool) -> None:
    with pytest.raises(naming.BadName):
        naming.check(name)
    if minimal:
        naming.check(name, "minimal")
    else:
        with pytest.raises(naming.BadName, match=r"C\+\+"):
            naming.check(name, "minimal")
    naming.check(name, "python")


def test_pytorch_reads_no_digit_in_the_name_of_a_device() -> None:
    # Because of this limit of PyTorch, the command refuses the name npu2.
    program = "import torch; torch.utils.rename_privateuse1_backend('npu2'); torch.device('npu2')"
    result = programs.python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert "RuntimeError: Invalid device string: 'npu2'" in result.stderr


def test_a_package_of_that_name_that_is_installed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "torch_acme.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        naming.BadName, match=f"^a package torch_acme is installed here already: {tmp_path}/torch_acme.py"
    ):
        naming.check("acme")


@pytest.mark.slow
def test_a_folder_of_that_name_in_the_working_directory_is_no_installed_package(tmp_path: Path) -> None:
    (tmp_path / "torch_acme").mkdir()
    command = (sys.executable, "-m", "torch_openreg", "new", "acme", "--minimal")
    programs.run(*command, cwd=tmp_path, status=0, errors="", PYTHONPATH=str(ROOT))
    assert (tmp_path / "torch_acme" / "README.md").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [(), ("--minimal",), ("--python",)], ids=["whole", "minimal", "python"])
def test_an_output_that_cannot_be_written_is_an_error_of_one_line(tmp_path: Path, kind: tuple[str, ...]) -> None:
    (tmp_path / "file").write_text("")
    result = new("acme", *kind, "--output", tmp_path / "file" / "inner", folder=tmp_path)
    assert (result.returncode, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("torch-openreg new: [Errno 20] Not a directory: ")


def test_a_name_that_the_sources_use_for_something_else_is_refused(tmp_path: Path) -> None:
    # "OpenRegGuard" would become "DeviceGuard", which is the name of a class of PyTorch.
    with pytest.raises(naming.BadName, match="^the sources use .*DeviceGuard.* for something else"):
        naming.full_table("device", ["OpenRegGuard DeviceGuard"])


@pytest.mark.parametrize("name", ["cuda", "my-chip"])
def test_a_refused_name_gives_one_sentence_and_writes_nothing(name: str, tmp_path: Path) -> None:
    result = new(name, folder=tmp_path)
    assert result.returncode == 1 and result.stdout == "" and list(tmp_path.iterdir()) == []
    assert result.stderr.startswith("torch-openreg new: ") and result.stderr.count("\n") == 1


# ---- An installed package --------------------------------------------------------------------------------------------


@with_one_name
def test_an_installed_package_makes_the_same_project_from_the_sources_that_it_carries(
    project: tuple[str, Path], empty_environment: Environment, tmp_path: Path
) -> None:
    name, whole = project
    package = empty_environment.package
    shutil.copytree(ROOT / "torch_openreg", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "_build_info.py").write_text("library_sizes = {}\n")
    archive.main(package / "sources.zip")
    for kind in ((), ("--minimal",), ("--python",)):
        here, there = (tmp_path / f"{place}{''.join(kind)}" for place in ("here", "there"))
        if kind:
            assert new(name, *kind, "--output", here, folder=tmp_path).returncode == 0
        else:
            here = whole
        command = [empty_environment.python, "-m", "torch_openreg", "new", name, *kind, "--output", there]
        programs.run(*command, cwd=empty_environment.folder, status=0, errors="")
        assert [path.relative_to(here) for path in files(here)] == [path.relative_to(there) for path in files(there)]
        for one, other in zip(files(here), files(there), strict=True):
            if one.name != "UPSTREAM.md":  # a checkout knows its commit
                assert (one.read_bytes(), os.access(one, os.X_OK)) == (other.read_bytes(), os.access(other, os.X_OK)), (
                    one
                )


def test_the_sources_that_a_package_carries_are_the_same_bytes_whatever_the_umask_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archives = []
    for umask in (0o022, 0o002):
        checkout = tmp_path / f"{umask}"
        for name in {*parts.files(ROOT), *parts.files(ROOT, archive.MAKERS, ())}:
            target = checkout / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target, follow_symlinks=False)
            if not target.is_symlink():
                target.chmod((0o777 if os.access(target, os.X_OK) else 0o666) & ~umask)
        monkeypatch.setattr(archive, "ROOT", checkout)
        archive.main(tmp_path / f"{umask}.zip")
        archives.append((tmp_path / f"{umask}.zip").read_bytes())
    assert archives[0] == archives[1]
