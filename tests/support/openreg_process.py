"""What the tests of libopenreg.so share: child processes, compiled programs, expected errors."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from environments import SUPPORT, environment_without_switches
from openreg_c import OpenRegError, library_path

LIBRARY_SOURCES = Path(__file__).parents[2] / "third_party" / "openreg"
INCLUDE = LIBRARY_SOURCES / "include"


def run_python(code: str, *python_options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs `from openreg_c import *` and then `code` in a process. The device finds only `variables` set."""
    environment = environment_without_switches() | variables
    environment["OPENREG_LIBRARY"] = str(library_path())
    environment["PYTHONPATH"] = SUPPORT
    return subprocess.run(
        [sys.executable, *python_options, "-c", "from openreg_c import *\n" + textwrap.dedent(code)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )


def output_of(code: str, **variables: str) -> str:
    """What `code` printed; it must have succeeded and said nothing on stderr."""
    result = run_python(code, **variables)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout.strip()


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
    subprocess.run(
        [compiler, *flags, folder / "program.cpp", "-o", program, library, f"-Wl,-rpath,{library.parent}"],
        check=True,
    )
    _COMPILED[source] = program
    return program


def run_program(program: Path, **variables: str) -> str:
    """What the program printed on stdout and stderr; it must have succeeded. The device finds only `variables` set."""
    result = subprocess.run(
        [program],
        env=environment_without_switches() | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout
