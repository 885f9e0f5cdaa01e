"""``python -m torch_openreg new NAME --minimal`` and ``--python``: the backend is installed and passes its tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import programs
import pytest
from programs import PYTEST

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
# Not optimized: the build takes most of the time. A cache of the compiler has the files that two builds share.
COMPILER = {"CXXFLAGS": "-O0 -g0", "CCACHE_NOHASHDIR": "1"} | (
    {"CC": "ccache gcc", "CXX": "ccache g++"} if shutil.which("ccache") else {}
)


def write(kind: str, folder: Path) -> Path:
    project = folder / "project"
    command = [sys.executable, "-m", "torch_openreg", "new", "acme", f"--{kind}", "--output", project]
    programs.run(*command, cwd=folder, PYTHONPATH=str(ROOT), status=0, errors="")
    return project


def install(project: Path, step: str, into: Path) -> dict[str, str]:
    """Builds and installs the project. Returns the variables with which a program uses it."""
    quiet = ["--quiet", "--disable-pip-version-check", "--no-build-isolation", "--no-deps", "--no-index"]
    command = [sys.executable, "-m", "pip", "install", *quiet, "--target", into, project]
    programs.run(*command, cwd=project.parent, ACME_STEP=step, **COMPILER, status=0)
    # torch_openreg, which would take PrivateUse1, is not loaded.
    return {"PYTHONPATH": os.fspath(into), "TORCH_OPENREG_AUTOLOAD": "0"}


@pytest.fixture(scope="module")
def minimal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write("minimal", tmp_path_factory.mktemp("minimal"))


@pytest.fixture(scope="module")
def first_step(minimal: Path) -> dict[str, str]:
    return install(minimal, "1", minimal.parent / "first")


def passed(tests: Path, variables: dict[str, str]) -> str:
    result = programs.run(*PYTEST, tests, cwd=tests.parent.parent, status=0, **variables)
    return result.stdout.splitlines()[-1]


def test_the_first_step_passes_its_own_tests_under_another_name(minimal: Path, first_step: dict[str, str]) -> None:
    assert "52 passed" in passed(minimal / "tests", first_step)


@pytest.mark.parametrize(("step", "tests"), [("2", 58), ("3", 67)])
def test_a_later_step_passes_its_own_tests_and_those_of_the_steps_before(
    step: str, tests: int, minimal: Path, tmp_path: Path
) -> None:
    assert f"{tests} passed" in passed(minimal / "tests", install(minimal, step, tmp_path))


def test_the_backend_in_python_passes_its_own_tests_under_another_name(tmp_path: Path) -> None:
    project = write("python", tmp_path)
    assert "5 passed" in passed(project / "tests", install(project, "1", tmp_path / "installed"))


# ---- The conformance kit

# What the first version of the minimal backend lacked -> the checks of the kit that show it.
DEFECTS = {
    ("csrc/operators.cpp", r"^  prepare<[^\n]*\n"): {
        *(f"operators/out/{operator}_resizes_its_output" for operator in ("add", "sum", "mm")),
        *(f"operators/out/{operator}_refuses_an_output_of_the_cpu" for operator in ("add", "sum")),
    },
    ("csrc/operators.cpp", r'^  m.impl\("_has_compatible_shallow_copy_type"[^\n]*\n'): {
        "trains/modules/to_moves_parameters_in_place",
        "trains/modules/an_earlier_optimizer_trains_what_to_has_moved",
    },
    ("src/torch_acme/acme.py", r"^class device\(.*?(?=\n\n\n)"): {
        "tensors/serialization/map_location_moves",
        "tensors/serialization/a_state_dict_is_saved_and_loaded",
    },
}


def failures(checks: set[str], variables: dict[str, str], report: Path) -> dict[str, str]:
    """Runs checks of the kit. Returns what it reports of those that do not pass: name -> the error."""
    path = os.pathsep.join([variables["PYTHONPATH"], os.fspath(ROOT / "conformance")])
    options = ["--no-sweeps", "--quiet", "--jobs", "1", "--timeout", "600", "--json", report]
    options += [f"--checks={name}" for name in checks]
    command = [sys.executable, "-m", "torch_conformance", "--device", "acme", *options]
    programs.run(*command, cwd=report.parent, **{**variables, "PYTHONPATH": path})
    found = json.loads(report.read_text())["checks"]
    assert {check["name"] for check in found} == checks
    return {check["name"]: check["detail"] for check in found if check["result"] != "passed"}


def test_the_kit_shows_a_kernel_without_a_check_of_out_a_replaced_parameter_and_a_module_without_device(
    minimal: Path, first_step: dict[str, str], tmp_path: Path
) -> None:
    checks = set().union(*DEFECTS.values())
    assert failures(checks, first_step, tmp_path / "report.json") == {}
    project = shutil.copytree(minimal, tmp_path / "project")
    for file, pattern in DEFECTS:
        text, count = re.subn(pattern, "", (project / file).read_text(), flags=re.MULTILINE | re.DOTALL)
        assert count, pattern
        (project / file).write_text(text)
    found = failures(checks, install(project, "1", tmp_path / "defective"), tmp_path / "report.json")
    assert set(found) == checks
    assert "has the shape (0,) now, and not (2,)" in found["operators/out/sum_resizes_its_output"]
    assert "no attribute 'device'" in found["tensors/serialization/map_location_moves"]
