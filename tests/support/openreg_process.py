"""What the tests of libopenreg.so share: child processes, compiled programs, expected errors."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

import programs
import pytest
from openreg_c import OpenRegError, library_path
from programs import SUPPORT, Done, Peer

LIBRARY_SOURCES = Path(__file__).parents[2] / "third_party" / "openreg"
INCLUDE = LIBRARY_SOURCES / "include"


def run_python(code: str, *options: str, **settings: Any) -> Done:
    """Runs `from openreg_c import *` and then `code`. Of the device's variables it has only those in `settings`."""
    paths = {"OPENREG_LIBRARY": str(library_path()), "PYTHONPATH": SUPPORT}
    code = "from openreg_c import *\n" + textwrap.dedent(code)
    return programs.python(code, options=options, clean=True, new_interpreter=True, **paths, **settings)


def peer(code: str, **variables: str) -> Peer:
    """As run_python(), for a process with which a test exchanges lines. It has the device's variables of this one."""
    paths = {"OPENREG_LIBRARY": str(library_path()), "PYTHONPATH": SUPPORT}
    code = "from openreg_c import *\n" + textwrap.dedent(code)
    return Peer(sys.executable, "-c", code, **paths, **variables)


def output_of(code: str, **variables: str) -> str:
    """What `code` printed; it must have succeeded and said nothing on stderr."""
    return run_python(code, status=0, errors="", **variables).stdout.strip()


def error_of(code: str, **variables: str) -> tuple[str, str]:
    """Name and message of the OpenRegError that `code` raises."""
    attempt = textwrap.indent(textwrap.dedent(code), "    ")
    output = output_of(
        f"try:\n{attempt}\n    raise SystemExit('no error')\nexcept OpenRegError as error:\n"
        "    print(error.name, error.message, sep='\\n')",
        **variables,
    )
    name, _, message = output.partition("\n")
    return name, message


def raises(name: str, message: str) -> pytest.RaisesExc[OpenRegError]:
    """Expects an OpenRegError of this name with exactly this message."""
    return pytest.raises(OpenRegError, match="^" + re.escape(f"{name}: {message}") + "$")


def cpp_compiler() -> str:
    """The C++ compiler's path; skips the test where there is none."""
    found = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if found is None:
        pytest.skip("needs a C++ compiler: c++, g++ or clang++")
    return found


_COMPILED: dict[str, Path] = {}


def compile_program(compiler: str, folder: Path, source: str) -> Path:
    """Compiles a C++ program, links it with the library, and returns its path. A program is compiled only once."""
    if source in _COMPILED:
        return _COMPILED[source]
    (folder / "program.cpp").write_text(source)
    program = folder / "program"
    library = library_path()
    flags = ("-std=c++20", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
    programs.run(
        compiler, *flags, folder / "program.cpp", "-o", program, library, f"-Wl,-rpath,{library.parent}", status=0
    )
    _COMPILED[source] = program
    return program


def run_program(program: Path, **variables: str) -> str:
    """What the program printed on stdout and stderr; it must have succeeded. The device finds only `variables` set."""
    result = programs.run(program, clean=True, **variables, merged=True, status=0)
    return result.stdout
