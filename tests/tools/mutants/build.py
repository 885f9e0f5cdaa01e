"""Builds the backend once with all its mutants in it, and installs it into an environment of its own.

Only the changed files are compiled, with the commands of the installed package's build folder. All other objects are
those of that folder. The result lies in build/mutants and is no part of any release.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
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


def _compile(command: str, source: str, original: str, build: Path) -> str:
    """Compiles one changed file with the command that compiled the original, and returns the object's path."""
    target = FOLDER / "objects" / (source + ".o")
    changed = FOLDER / "sources" / source
    if target.exists() and target.stat().st_mtime > changed.stat().st_mtime:
        return str(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    words = shlex.split(command)
    for option, value in (("-o", str(target)), ("-c", str(changed)), ("-MF", f"{target}.d"), ("-MT", str(target))):
        words[words.index(option) + 1] = value
    # The compiler searches includes in quotation marks in the folder of the original file.
    words[words.index("-c") : words.index("-c")] = ["-iquote", str(Path(original).parent), "-Wno-unused"]
    programs.run(*words, cwd=build, timeout=None, status=0)
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
    jobs: list[tuple[str, str, str]] = []
    links: dict[str, str] = {}
    for library in LIBRARIES:
        for command in _ninja(folder, library):
            found = re.search(r" -c (\S+\.cpp)$", command)
            if found:
                file = next((f for f in texts if found[1].endswith("/" + f)), None)
                output = re.search(r" -o (\S+\.o) ", command)
                if file and output and (command, file, output[1]) not in jobs:
                    jobs.append((command, file, output[1]))
            elif f"-o {library} " in command:
                links[library] = command
    with ThreadPoolExecutor(2) as pool:
        objects = dict(
            pool.map(
                lambda job: (job[2], _compile(job[0], job[1], re.search(r" -c (\S+)$", job[0])[1], folder)),  # type: ignore[index]
                jobs,
            )
        )
    assert len(objects) == len(texts), sorted(texts)
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
