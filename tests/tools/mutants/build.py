"""Builds the backend once with all its mutants in it, and installs it into an environment of its own.

Only the changed files are compiled, with the commands of the installed package's build folder. All other objects are
those of that folder. The result lies in build/mutants and is no part of any release.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import programs
from environments import Environment

from . import table

FOLDER = table.ROOT / "build" / "mutants"
LIBRARIES = ("third_party/openreg/libopenreg.so", "csrc/libtorch_openreg.so")


def _ninja(build: Path, target: str) -> list[str]:
    ninja = shutil.which("ninja") or str(Path(sys.executable).parent / "ninja")
    return programs.run(ninja, "-C", build, "-t", "commands", target, status=0).stdout.splitlines()


INCLUDED = re.compile(r'(?<=#include ").+(?=")')


def _with_mutants(source: str, files: Iterable[str]) -> Path | None:
    """The copy that has mutants of a source file, or of a file that includes sources (a unity build); None: it has none."""
    if file := next((file for file in files if source.endswith("/" + file)), None):
        return FOLDER / "sources" / file
    if not source.endswith(".cxx"):
        return None
    text = Path(source).read_text()
    changed = INCLUDED.sub(lambda name: str(_with_mutants(name[0], files) or name[0]), text)
    copy = FOLDER / "sources" / Path(source).name
    copy.write_text(changed)
    return copy if changed != text else None


def _compile(command: str, changed: Path, build: Path) -> str:
    """Compiles a copy with the command that compiled the original, and returns the object's path."""
    target = FOLDER / "objects" / changed.relative_to(FOLDER / "sources").with_suffix(".o")
    target.parent.mkdir(parents=True, exist_ok=True)
    words = shlex.split(command)
    original = Path(words[words.index("-c") + 1])
    for option, value in (("-o", target), ("-c", changed), ("-MF", f"{target}.d"), ("-MT", target)):
        words[words.index(option) + 1] = str(value)
    # The compiler searches includes in quotation marks in the folders of the original files.
    for folder in {Path(file).parent for file in (original, *INCLUDED.findall(original.read_text()))}:
        words[words.index("-c") : words.index("-c")] = ["-iquote", str(folder)]
    programs.run(*words, "-Wno-unused", cwd=build, timeout=None, status=0)
    return str(target)


def build(folder: Path) -> Path:
    """Compiles and installs; ``folder`` is the build folder of the installed package.

    Returns the environment's Python.
    """
    texts = table.sources()
    for file, text in texts.items():
        path = FOLDER / "sources" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
    jobs: dict[str, tuple[str, Path]] = {}  # object -> the command that makes it, and the source with mutants
    links: dict[str, str] = {}
    for library in LIBRARIES:
        for command in _ninja(folder, library):
            source = re.search(r" -c (\S+\.c(?:pp|xx))$", command)
            if source and (changed := _with_mutants(source[1], texts)):
                jobs[re.search(r" -o (\S+\.o) ", command)[1]] = (command, changed)  # type: ignore[index]
            elif f"-o {library} " in command:
                links[library] = command
    compiled = {name for _, changed in jobs.values() for name in (str(changed), *INCLUDED.findall(changed.read_text()))}
    assert compiled >= {str(FOLDER / "sources" / file) for file in texts}
    with ThreadPoolExecutor(2) as pool:
        objects = dict(zip(jobs, pool.map(lambda job: _compile(*job, folder), jobs.values()), strict=True))
    for library, command in links.items():
        made = FOLDER / Path(library).name
        for old, new in objects.items():
            command = command.replace(f" {old} ", f" {new} ")
        command = command.replace(f"-o {library} ", f"-o {made} ")
        if library != LIBRARIES[0]:
            command = command.replace(f" {LIBRARIES[0]} ", f" {FOLDER / Path(LIBRARIES[0]).name} ")
        programs.run("sh", "-c", command, cwd=folder, timeout=None, status=0)
    return _install()


def _install() -> Path:
    where = FOLDER / "environment"
    shutil.rmtree(where, ignore_errors=True)
    environment = Environment(where)
    environment.install()
    with (environment.site_packages / "outer.pth").open("a") as lines:  # the environments of tests copy these lines
        lines.write(table.ignore_variable())
    for library in LIBRARIES:
        installed = environment.package / "lib" / Path(library).name
        assert installed.exists(), installed
        shutil.copy(FOLDER / Path(library).name, installed)
    # The package refuses libraries that are not those of its build.
    programs.run(sys.executable, table.ROOT / "cmake" / "library_sizes.py", environment.package, status=0)
    return environment.python
