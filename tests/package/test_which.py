"""Another project is called torch_openreg too: PyTorch's own backend. Errors and the doctor say which one is loaded."""

from __future__ import annotations

import shutil
from pathlib import Path

import programs
import pytest
from environments import Environment
from programs import Done

ROOT = Path(__file__).parents[2]
USE = "import torch; torch.ones(2, device='openreg')"
STAND_IN = "def _autoload():\n    pass\n"


def doctor(environment: Environment, folder: Path) -> Done:
    """The doctor as the console script `torch-openreg` starts it: the current folder is not on Python's path."""
    script = environment.folder / "bin" / "torch-openreg.py"  # a server starts files with this suffix
    script.write_text("import sys\nfrom torch_openreg._cli import main\nsys.exit(main())\n")
    return programs.run(environment.python, script, "doctor", cwd=folder)


@pytest.fixture
def hiding(tmp_path: Path) -> Path:
    """The package of another project, in the folder where programs start."""
    folder = tmp_path / "torch_openreg"
    folder.mkdir()
    (folder / "__init__.py").write_text(STAND_IN)
    return folder


def hides(folder: Path, environment: Environment) -> str:
    return f"{folder}, which is another project of this name and hides {environment.package}. Leave "


@pytest.mark.slow
@pytest.mark.parametrize("source", [STAND_IN, "import torch_openreg._C\n"], ids=["built", "not built"])
def test_a_source_tree_that_hides_the_package_is_named(
    shared_environment: Environment, hiding: Path, source: str
) -> None:
    (hiding / "__init__.py").write_text(source)
    result = programs.run(shared_environment.python, "-c", USE, cwd=hiding.parent, status=1)
    assert f"Python imports torch_openreg from {hides(hiding, shared_environment)}" in result.stderr
    for command in ("doctor", "--help"):  # the other package has no command line
        programs.run(shared_environment.python, "-m", "torch_openreg", command, cwd=hiding.parent, status=1)


@pytest.mark.slow
def test_the_doctor_names_a_source_tree_that_hides_the_package(shared_environment: Environment, hiding: Path) -> None:
    report = doctor(shared_environment, hiding.parent)
    sentence = (
        f"`python -c` and `python -m` in this folder import torch_openreg from {hides(hiding, shared_environment)}"
    )
    assert report.returncode == 1 and sentence in report.stdout
    assert f"Package  torch_openreg  {shared_environment.package}\n" in report.stdout


@pytest.mark.slow
def test_a_distribution_that_replaced_this_one_is_named(empty_environment: Environment, tmp_path: Path) -> None:
    environment = empty_environment
    environment.add_distribution(
        "torch_openreg", STAND_IN, "[torch.backends]\ntorch_openreg = torch_openreg:_autoload\n"
    )
    checkout = tmp_path / "checkout"
    shutil.copytree(
        ROOT / "torch_openreg",
        checkout / "torch_openreg",
        ignore=shutil.ignore_patterns("_build_info.py", "*.so", "__pycache__", "csrc"),
    )
    shutil.copy(ROOT / "torch_openreg_autoload.py", checkout)
    sentence = (
        f"The installed distribution torch_openreg 1.0 in {environment.site_packages} is another project of this name, "
        f"and not {checkout}/torch_openreg: pip replaces one by the other."
    )
    result = programs.run(environment.python, "-c", USE, cwd=checkout)
    assert result.returncode == 1 and sentence in result.stderr.splitlines()[-1], result.stderr
    report = programs.run(environment.python, "-m", "torch_openreg", "doctor", cwd=checkout)
    assert report.returncode == 1 and sentence in report.stdout, report.stdout + report.stderr


@pytest.mark.slow
def test_nothing_is_said_if_this_project_is_installed_and_loaded(
    shared_environment: Environment, tmp_path: Path
) -> None:
    report = doctor(shared_environment, tmp_path)
    assert (report.returncode, report.stderr) == (0, "")
    assert (
        f"Package  torch_openreg  {shared_environment.package}\n" in report.stdout and "this name" not in report.stdout
    )
