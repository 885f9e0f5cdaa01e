"""Installs the distributions of this folder into the environments of tests."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import programs
from environments import Environment

HERE = Path(__file__).parent


def install(environment: Environment, name: str, folder: Path | None = None, copy_of: str | None = None) -> None:
    """Installs ``name``, version 1.0, into the environment's site-packages or another folder.

    ``copy_of``: a distribution of this folder, if ``name`` is a renamed copy of it.
    """
    source, target = HERE / (copy_of or name), folder or environment.site_packages
    target.mkdir(exist_ok=True)
    for path in source.glob(f"{copy_of or name}*"):
        renamed = target / path.name.replace(copy_of or name, name)
        (shutil.copytree if path.is_dir() else shutil.copy)(path, renamed)
    info = target / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    points = (source / "entry_points.txt").read_text()
    (info / "entry_points.txt").write_text(points.replace(copy_of or name, name))


def compile_owner(folder: Path) -> Path:
    """The library of torch_owner. Takes seconds: compile it once for all tests."""
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    torch, library = Path(spec.origin).parent, folder / "backend.so"
    compiler = ["g++", "-std=c++20", "-O0", "-fPIC", "-shared", f"-I{torch}/include", f"-L{torch}/lib"]
    programs.run(*compiler, HERE / "torch_owner" / "backend.cpp", "-o", library, "-lc10", "-ltorch_cpu", status=0)
    return library


def compile_undefined(package: Path) -> None:
    """The library of the installed torch_undefined."""
    source = HERE / "torch_undefined" / "library.c"
    programs.run("gcc", "-w", "-fPIC", "-shared", source, "-o", package / "_C.so", status=0)
