"""The runner of other people's test suites, on a small suite of our own that passes, fails, crashes and hangs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from clients.__main__ import suites, summary
from clients.runner import CPU, FACES, Suite, run_file

ROOT = Path(__file__).parents[1]

SUITE = """
import os, time
import pytest, torch

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

def test_passes(): pass

@needs_cuda
def test_needs_cuda(): assert torch.ones(2, device="cuda").is_cuda

@needs_cuda
def test_mixes_devices(): torch.ones(2, device="cuda") + torch.ones(2)

def test_fails_everywhere(): assert 1 == 2

@needs_cuda
@pytest.mark.parametrize("n", [1, 2])
def test_dies(n): os.kill(os.getpid(), 6)

def test_after_the_deaths(): pass
"""


@pytest.fixture
def suite(tmp_path: Path) -> Suite:
    folder = tmp_path / "owner" / "repository" / "tests"
    folder.mkdir(parents=True)
    (folder / "test_all.py").write_text(SUITE)
    (folder / "test_broken.py").write_text("import nothing_of_this_name\n")
    return Suite("small", "torch", "torch", "owner/repository", ["tests/test_*.py"], known={"*dies*[[]2]": "known"})


def outcomes(suite: Suite, sources: Path, environment: dict[str, str]) -> dict[str, str]:
    root = sources / suite.checkout
    results = {}
    for file in suite.test_files(sources):
        results.update(run_file(file, suite, root, environment, sources / "records", 120))
    return {name.removeprefix("tests/"): f"{result.outcome}: {result.cause}" for name, result in results.items()}


def test_each_test_has_an_outcome_whatever_it_does(suite: Suite, tmp_path: Path) -> None:
    on_cpu = outcomes(suite, tmp_path, CPU)
    assert on_cpu["test_all.py::test_passes"] == "passed: "
    assert on_cpu["test_all.py::test_needs_cuda"] == "skipped: Skipped: needs a GPU"
    assert on_cpu["test_broken.py"] == "failed: E   ModuleNotFoundError: No module named 'nothing_of_this_name'"
    here = outcomes(suite, tmp_path, FACES["cuda"])
    assert here["test_all.py::test_needs_cuda"] == "passed: "
    assert here["test_all.py::test_mixes_devices"].startswith(
        "failed: RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0"
    )
    for n in (1, 2):  # each death is followed by a process for the rest
        assert here[f"test_all.py::test_dies[{n}]"].startswith("crashed: SIGABRT: ")
    assert here["test_all.py::test_after_the_deaths"] == "passed: "


def test_a_test_that_hangs_is_ended_and_the_others_run(suite: Suite, tmp_path: Path) -> None:
    file = tmp_path / suite.checkout / "tests" / "test_hang.py"
    file.write_text("import time\ndef test_one(): pass\ndef test_hangs(): time.sleep(60)\ndef test_two(): pass\n")
    results = run_file(file, suite, tmp_path / suite.checkout, CPU, tmp_path / "records", 15)
    assert {name.partition("::")[2]: (result.outcome, result.cause) for name, result in results.items()} == {
        "test_one": ("passed", ""),
        "test_hangs": ("crashed", "no end after 15 s"),
        "test_two": ("passed", ""),
    }


def test_the_table_tells_apart_what_fails_on_the_cpu_too(suite: Suite, tmp_path: Path) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.clients", "--sources", str(tmp_path), "--json", str(rows), "small"]
    table = f"""
[small]
package = "torch"
requirement = "torch"
checkout = "{suite.checkout}"
files = ["tests/test_*.py"]
known = {{ "*dies*[[]2]" = "it is known" }}
"""
    (tmp_path / "libraries.toml").write_text(table)
    command += ["--libraries", str(tmp_path / "libraries.toml")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    (row,) = json.loads(rows.read_text())
    failures = row.pop("failures")
    assert row == {
        "library": "small",
        "collected": 8,
        "run here": 8,
        "skipped on a CPU machine, run here": 4,
        "passed": 3,
        "failed, explained": 3,
        "failed": 2,
    }
    assert {name.partition("::")[2]: failure["reason"] for name, failure in failures.items()} == {
        "": "fails without an accelerator too",
        "test_fails_everywhere": "fails without an accelerator too",
        "test_dies[2]": "it is known",
        "test_dies[1]": "",
        "test_mixes_devices": "",
    }
    assert "tests/test_all.py::test_dies[1]" in result.stdout


def test_a_library_that_is_not_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.clients", "--sources", str(tmp_path)]
    (tmp_path / "libraries.toml").write_text(
        '[absent]\npackage = "absent_package"\nrequirement = "absent==1"\ncheckout = "a/b"\nfiles = []\n'
        '[unfetched]\npackage = "torch"\nrequirement = "torch"\ncheckout = "c/d"\nfiles = ["*.py"]\n'
    )
    command += ["--libraries", str(tmp_path / "libraries.toml")]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={"COLUMNS": "200"})
    assert result.returncode == 1
    said = " ".join(result.stdout.split())
    assert "absent: not installed. Install it with: pip install absent==1" in said
    assert "Check out github.com/c/d there." in said


def test_the_list_of_libraries_is_complete() -> None:
    known = suites()
    assert len(known) >= 9
    for name, suite in known.items():
        assert suite.name == name and suite.files and suite.checkout.count("/") == 1
        assert all(reason.endswith(".") for reason in suite.known.values())


def test_what_fails_alike_without_an_accelerator_is_explained() -> None:
    from clients.runner import Outcome

    suite = Suite("a", "a", "a", "a/a", ["*"])
    row = summary(suite, {"t": Outcome("failed")}, {"t": Outcome("failed", "why"), "u": Outcome("crashed", "SIGABRT")})
    assert (row["failed, explained"], row["failed"]) == (1, 1)
    assert row["failures"]["u"] == {"outcome": "crashed", "cause": "SIGABRT", "on the cpu": "not there", "reason": ""}
