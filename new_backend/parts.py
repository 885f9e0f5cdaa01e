"""The files of a new backend: whole files and folders. Only their names differ from those of this project.

Lines with the book's ``LITERALINCLUDE`` marks are left out, because a new backend has no book.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Everything that can be part of a new backend. Symbolic links are kept as links.
FILES = (
    ".ci/run",
    ".clang-format",
    ".editorconfig",
    ".gitignore",
    ".pre-commit-config.yaml",
    "CMakeLists.txt",
    "LICENSE",
    "Makefile",
    "cmake",
    "conformance",
    "csrc",
    "examples/custom_operators.py",
    "examples/distributed",
    "examples/first_kernel",
    "examples/train_digits.py",
    "pyproject.toml",
    "tests",
    "third_party",
    "torch_openreg",
    "torch_openreg_autoload.py",
    "torch_openreg_pytest.py",
)
# The parts of FILES that only this project has: the device type cuda, the book, the fuzzer, benchmarks, other people's
# programs, and the ways to choose simulated devices for programs that are tested without hardware.
LEFT_OUT = (
    "cmake/rename.py",
    "conformance/tests",
    "tests/book",
    "tests/cuda",
    "tests/integrations",
    "tests/package/build_new_backend.py",
    "tests/package/test_new_backend.py",
    "tests/package/test_next_pytorch.py",
    "tests/package/test_wheels.py",
    "tests/simulator/conftest.py",
    "tests/simulator/test_pytest_options.py",
    "tests/simulator/test_pytest_plugin.py",
    "tests/simulator/test_under_faults.py",
    "tests/support/cuda_builds.py",
    "tests/support/libraries.py",
    "tests/tools/clients",
    "tests/tools/fuzz",
    "tests/tools/mutants",
    "tests/tools/pairs",
    "tests/tools/test_pairs.py",
    "tests/tools/test_benchmark_smoke.py",
    "tests/tools/test_clients.py",
    "tests/tools/test_conformance.py",
    "tests/tools/test_fuzz.py",
    "tests/package/test_upstream.py",
    "torch_openreg/_cli/conformance.py",
    "torch_openreg/_cli/new.py",
    "torch_openreg/_cuda",
)
# Files in which no name is replaced: the licence names the author of this project.
VERBATIM = ("LICENSE",)


def files(root: Path, wanted: tuple[str, ...] = FILES, left_out: tuple[str, ...] = LEFT_OUT) -> Iterator[str]:
    """The paths of a new backend's files in the sources at ``root``, not yet renamed. Leaves out what was built."""
    for part in wanted:
        paths = [root / part] if not (root / part).is_dir() else sorted((root / part).rglob("*"))
        for path in paths:
            name = path.relative_to(root).as_posix()
            built = (
                {"__pycache__", "build"} & {*name.split("/")} or path.suffix in (".pyc", ".so") or ".egg-info" in name
            )
            if built or any(name == each or name.startswith(f"{each}/") for each in left_out):
                continue
            if path.is_file() or path.is_symlink():
                yield name
