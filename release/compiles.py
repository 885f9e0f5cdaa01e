"""What a compiler says about the sources of this package with another PyTorch. It reads headers, and makes no objects.

Such a PyTorch is a folder with torch/include, torch/version.py and torchgen: an unpacked wheel, or what
unpack_checkout() makes of a checkout.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from wheels import ROOT, run

# Folder of a checkout -> folder of a wheel, for each kind of file that is the same in both.
PLACES = (
    ("c10", "torch/include/c10", ".h"),
    ("aten/src/ATen", "torch/include/ATen", ".h"),
    ("torch", "torch/include/torch", ".h"),
    ("torch", "torch/include/torch", ".hpp"),
    ("torch", "torch", ".py"),
    ("torch", "torch", ".pyi"),
    ("torchgen", "torchgen", ".py"),
    ("aten/src/ATen/native", "torchgen/packaged/ATen/native", ".yaml"),
)
INCLUDED = re.compile(r'^#include "(.+\.cpp)"$', re.MULTILINE)
ERROR = re.compile(r"^(\S+?:\d+):\d+: (?:fatal )?error: (.*)$", re.MULTILINE)


def unpack_checkout(checkout: Path, wheel: Path, folder: Path) -> Path:
    """Makes ``folder``, as the wheel would be that is built from a checkout of PyTorch.

    torchgen makes the headers of the operators. What else a build makes, and what comes from other projects, is taken
    from ``wheel``, an unpacked wheel of another version.
    """
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(wheel, folder)
    for source, target, suffix in PLACES:
        for file in (folder / target).rglob(f"*{suffix}"):
            same = checkout / source / file.relative_to(folder / target)
            # A build makes a file of a template, or in a folder that the checkout does not have.
            if same.parent.exists() and not same.with_name(f"{same.name}.in").exists():
                file.unlink()
        for file in (checkout / source).rglob(f"*{suffix}"):
            copy = folder / target / file.relative_to(checkout / source)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, copy)
    (folder / "torch" / "version.py").write_text(f"__version__ = '{(checkout / 'version.txt').read_text().strip()}'\n")
    operators = folder / "torch" / "include" / "ATen"
    shutil.rmtree(operators / "ops")
    run(
        [sys.executable, "-m", "torchgen.gen", "--source-path", checkout / "aten" / "src" / "ATen",
         "--install-dir", operators, "--aoti-install-dir", operators / "aoti", "--per-operator-headers",
         "--generate", "headers"],
        PYTHONPATH=str(folder),
    )  # fmt: skip
    return folder


def compile_commands(torch: Path, build: Path) -> list[dict[str, str]]:
    """Configures a build with that PyTorch. Returns the steps that compile sources, as CMake lists them.

    The sources that the build generates are there afterwards, and the precompiled headers are not: they are read as text.
    """
    run(
        [sys.executable, "-m", "cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
         f"-DPython_EXECUTABLE={sys.executable}", "-DSKBUILD_PROJECT_VERSION_FULL=0",
         "-DSKBUILD_PLATLIB_DIR=unused"],
        PYTHONPATH=str(torch),
    )  # fmt: skip
    steps = json.loads(run([sys.executable, "-m", "ninja", "-C", build, "-t", "compdb"]))
    # Not by Ninja, which would first compile the libraries that the targets of the generated sources depend on.
    for step in steps:
        if step["output"].endswith((".cpp", ".inc")):
            (build / step["output"]).parent.mkdir(parents=True, exist_ok=True)
            run(["sh", "-c", f"cd {build} && {step['command']}"])
    return [step for step in steps if step["output"].endswith((".cpp.o", ".cxx.o"))]


def one_by_one(step: dict[str, str]) -> list[dict[str, str]]:
    """A step that compiles the sources of a folder as one file, as a step for each source. Any other step stays."""
    if not step["file"].endswith(".cxx"):
        return [step]
    sources = INCLUDED.findall(Path(step["directory"], step["file"]).read_text())
    return [
        {**step, "file": source, "command": step["command"].replace(f"-c {step['file']}", f"-c {source}")}
        for source in sources
    ]


def first_error(step: Mapping[str, str]) -> tuple[str, str] | None:
    """Place (file:line) and text of the first error with which the compiler refuses a source. None: it compiles."""
    command = re.sub(r" (-MD|-M[TF] \S+|-o \S+)(?= )", "", step["command"]) + " -fsyntax-only -w"
    result = subprocess.run(
        command, shell=True, cwd=step["directory"], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True
    )
    if result.returncode == 0:
        return None
    found = ERROR.search(result.stderr)
    if found is None:
        sys.exit(f"{command}\nfailed without an error at a line:\n{result.stderr}")
    return found[1], found[2]


def refused(steps: Iterable[dict[str, str]]) -> dict[tuple[str, str], list[str]]:
    """The first errors of all sources that do not compile: (place, text) -> the sources.

    A step of several sources is tried at once, which takes a third of the time. If it fails, each source is tried alone.
    """
    found: dict[tuple[str, str], list[str]] = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:

        def errors(steps: list[dict[str, str]]) -> list[tuple[dict[str, str], tuple[str, str]]]:
            return [(step, error) for step, error in zip(steps, pool.map(first_error, steps), strict=True) if error]

        for step, error in errors(list(steps)):
            sources = one_by_one(step)
            # If the sources fail only together, the error is that of the step.
            for failed, first in ([] if sources == [step] else errors(sources)) or [(step, error)]:
                found.setdefault(first, []).append(failed["file"])
    return found
