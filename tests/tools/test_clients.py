"""The runner of other people's test suites, on a small suite of our own that passes, fails, crashes and hangs."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import programs
import pytest
from clients.__main__ import suites, summary
from clients.runner import CPU, IDENTITIES, Suite, run_file
from cuda_builds import AS_CUDA

ROOT = Path(__file__).parents[2]

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
    known = {"names": {"*dies*[[]2]": "known"}}
    return Suite("small", "torch", "torch", "owner/repository", ["tests/test_*.py"], known=known)


def test_a_suite_finds_the_commands_of_the_environment(suite: Suite, tmp_path: Path) -> None:
    root = tmp_path / suite.checkout
    file = root / "tests" / "test_command.py"
    file.write_text(
        "import shutil, sys\nfrom pathlib import Path\n"
        "def test_torchrun(): assert shutil.which('torchrun') == str(Path(sys.executable).parent / 'torchrun')\n"
    )
    results = run_file(file, suite, root, {**CPU, "PATH": "/usr/bin:/bin"}, tmp_path / "records", 120)
    assert [(result.outcome, result.cause) for result in results.values()] == [("passed", "")]


def test_an_interrupted_suite_goes_on_from_its_records(suite: Suite, tmp_path: Path) -> None:
    """The next run repeats the test that was interrupted, and runs those that had not begun."""
    file, records = tmp_path / suite.checkout / "tests" / "test_three.py", tmp_path / "records"
    begun = tmp_path / "begun"
    body = f"open({str(begun)!r}, 'a').write"
    file.write_text(f"def test_a(): {body}('a')\ndef test_b(): {body}('b')\ndef test_c(): {body}('c')\n")
    run = partial(run_file, file, suite, tmp_path / suite.checkout, CPU, records, 120, resume=True)
    results = run()
    lines = records.read_text().splitlines()
    number = next(n for n, line in enumerate(lines) if "test_b" in line and '"crashed"' in line)
    records.write_text("\n".join(lines[: number + 1]) + "\n")
    assert run() == results == run() and len(results) == 3
    assert begun.read_text() == "abcbc"  # the third run starts no test


@pytest.mark.slow
def test_a_test_that_hangs_is_ended_and_the_others_run(suite: Suite, tmp_path: Path) -> None:
    file = tmp_path / suite.checkout / "tests" / "test_hang.py"
    file.write_text("import time\ndef test_one(): pass\ndef test_hangs(): time.sleep(1000)\ndef test_two(): pass\n")
    results = run_file(file, suite, tmp_path / suite.checkout, CPU, tmp_path / "records", 30)
    assert {name.partition("::")[2]: (result.outcome, result.cause) for name, result in results.items()} == {
        "test_one": ("passed", ""),
        "test_hangs": ("crashed", "no end after 30 s"),
        "test_two": ("passed", ""),
    }


@pytest.mark.slow
@AS_CUDA
def test_each_test_has_an_outcome_and_the_table_tells_apart_what_fails_on_the_cpu_too(
    suite: Suite, tmp_path: Path
) -> None:
    rows = tmp_path / "rows.json"
    command = [sys.executable, "-m", "tests.tools.clients", "--sources", str(tmp_path), "--json", str(rows), "small"]
    table = f"""
[small]
package = "torch"
requirement = "torch"
checkout = "{suite.checkout}"
files = ["tests/test_*.py"]
known.names = {{ "*dies*[[]2]" = "it is known" }}
"""
    (tmp_path / "libraries.toml").write_text(table)
    command += ["--libraries", str(tmp_path / "libraries.toml")]
    result = programs.run(*command, cwd=ROOT)
    assert result.returncode == 1, result.stderr
    (row,) = json.loads(rows.read_text())
    failures = row.pop("failures")
    assert row == {
        "library": "small",
        "collected": 8,
        "run here": 8,
        "skipped on a CPU machine, run here": 4,
        "passed on a CPU machine": 2,
        "passed on both": 2,
        "passed": 3,
        "failed, explained": 3,
        "causes": {"names": 1, "fails on the CPU too": 2},
        "failed": 2,
    }
    assert {name.partition("::")[2]: failure["reason"] for name, failure in failures.items()} == {
        "": "fails without an accelerator too",
        "test_fails_everywhere": "fails without an accelerator too",
        "test_dies[2]": "it is known",
        "test_dies[1]": "",
        "test_mixes_devices": "",
    }
    causes = {name.removeprefix("tests/"): failure["cause"] for name, failure in failures.items()}
    assert causes["test_broken.py"] == "E   ModuleNotFoundError: No module named 'nothing_of_this_name'"
    assert causes["test_all.py::test_mixes_devices"].startswith(
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0"
    )
    for n in (1, 2):  # after each crash, a new process runs the rest
        assert failures[f"tests/test_all.py::test_dies[{n}]"]["outcome"] == "crashed"
        assert causes[f"test_all.py::test_dies[{n}]"].startswith("SIGABRT: ")
    assert "tests/test_all.py::test_dies[1]" in result.stdout


def test_a_library_that_is_not_there_is_said_with_what_to_do(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.tools.clients", "--sources", str(tmp_path)]
    (tmp_path / "libraries.toml").write_text(
        '[absent]\npackage = "absent_package"\nrequirement = "absent==1"\ncheckout = "a/b"\nfiles = []\n'
        '[unfetched]\npackage = "torch"\nrequirement = "torch"\ncheckout = "c/d"\nfiles = ["*.py"]\n'
    )
    command += ["--libraries", str(tmp_path / "libraries.toml")]
    result = programs.run(*command, cwd=ROOT, COLUMNS="200")
    assert result.returncode == 1
    said = " ".join(result.stdout.split())
    assert "absent: not installed. Install it with: pip install absent==1" in said
    assert "Check out github.com/c/d there." in said


PROGRAM = """
import os
import torch
if not torch.cuda.is_available():
    raise RuntimeError(f"rank {os.environ.get('RANK')} of {os.environ.get('WORLD_SIZE')} has no GPU")
"""


@pytest.mark.slow
@AS_CUDA
def test_a_program_of_an_installed_package_is_run_as_one_process_and_as_two_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "package_of_programs" / "scripts").mkdir(parents=True)
    (tmp_path / "package_of_programs" / "__init__.py").touch()
    (tmp_path / "package_of_programs" / "logging.py").write_text("raise RuntimeError('not of the standard library')")
    (tmp_path / "package_of_programs" / "scripts" / "test_gpu.py").write_text(PROGRAM)
    monkeypatch.syspath_prepend(tmp_path)
    suite = Suite("programs", "package_of_programs", "x==1", "", ["scripts/test_*.py"], through="program.py")
    (file,) = suite.test_files(tmp_path / "nowhere")
    root, found = suite.root(tmp_path / "nowhere"), []
    for environment in (CPU, IDENTITIES["cuda"]):
        results = run_file(file, suite, root, environment, tmp_path / "records", 120)
        found.append(
            {
                name.partition("::")[2]: (result.outcome, result.cause.partition("\n")[0])
                for name, result in results.items()
            }
        )
    one, two = (f"test_a_program_ends_well[test_gpu-{ranks}]" for ranks in (1, 2))
    assert found[0] == {
        one: ("failed", "AssertionError: rank 0 ended with 1: RuntimeError: rank None of None has no GPU"),
        two: ("failed", "AssertionError: rank 0 ended with 1: RuntimeError: rank 0 of 2 has no GPU"),
    }
    assert found[1] == {one: ("passed", ""), two: ("passed", "")}


@pytest.mark.slow
def test_a_process_that_dies_before_its_tests_is_a_failure(suite: Suite, tmp_path: Path) -> None:
    (tmp_path / "recorder.py").write_text("raise SystemExit(1)")  # before the runner's own recorder
    (file, _) = suite.test_files(tmp_path)
    results = run_file(file, suite, tmp_path, CPU, tmp_path / "records", 120)
    assert {name: result.outcome for name, result in results.items()} == {str(file.relative_to(tmp_path)): "failed"}


def test_the_list_of_libraries_is_complete() -> None:
    known = suites()
    assert len(known) >= 9
    for name, suite in known.items():
        assert suite.name == name and suite.files and suite.checkout.count("/") == bool(suite.checkout)
        assert all(reason.endswith(".") for patterns in suite.known.values() for reason in patterns.values())


def test_what_fails_alike_without_an_accelerator_is_explained() -> None:
    from clients.runner import Outcome

    suite = Suite("a", "a", "a", "a/a", ["*"])
    row = summary(suite, {"t": Outcome("failed")}, {"t": Outcome("failed", "why"), "u": Outcome("crashed", "SIGABRT")})
    assert (row["failed, explained"], row["failed"]) == (1, 1)
    assert row["failures"]["u"] == {"outcome": "crashed", "cause": "SIGABRT", "on the cpu": "not there", "reason": ""}


GENERIC = """
import torch
from torch.testing._internal.common_device_type import dtypes, instantiate_device_type_tests
from torch.testing._internal.common_utils import TestCase

class TestFirst(TestCase):
    @dtypes(torch.float32, torch.int64)
    def test_passes(self, device, dtype):
        self.assertEqual(torch.ones(2, device=device, dtype=dtype).sum().item(), 2)

class TestSecond(TestCase):
    def test_fails_on_the_cpu_too(self, device): self.assertEqual(1, 2)

    def test_cpu_is_all_it_knows(self, device):
        self.assertEqual(torch.ones(1, device=device).device.type, "cpu")

    def test_needs_an_accelerator(self, device):
        if device == "cpu":
            self.skipTest("needs an accelerator")
        self.assertEqual(torch.ones(1, device=device).device.type, torch.accelerator.current_accelerator().type)

class TestForNoDevice(TestCase):
    def test_cpu_in_the_name(self): pass

instantiate_device_type_tests(TestFirst, globals())
instantiate_device_type_tests(TestSecond, globals())
"""

INDUCTOR = """
import unittest
import torch
from torch._inductor import a_name_of_another_version
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.inductor_utils import GPU_TYPE, requires_gpu

def is_triton_backend(device): return device != "cpu"

def check_model(self, model, inputs):
    self.assertEqual(torch.compile(model)(*inputs), model(*inputs))

def check_model_gpu(self, model, inputs):
    check_model(self, model, [x.to(GPU_TYPE) for x in inputs])

class CommonTemplate:
    def test_adds(self):
        self.common(lambda x: x.sin() + 1, (torch.ones(5),))
        self.assertFalse(is_triton_backend(self.device))

    @requires_gpu()
    def test_needs_a_gpu(self):
        self.assertEqual(torch.compile(torch.cos)(torch.zeros(2, device=GPU_TYPE)).device.type, self.device)

    @a_name_of_another_version
    def test_uses_what_is_gone(self): pass

    def test_fails_on_the_device(self):
        self.assertEqual(self.device, "cpu")

def copy_tests(my_cls, other_cls, suffix):
    for name, value in vars(my_cls).items():
        if name.startswith("test_"):
            setattr(other_cls, f"{name}_{suffix}", value)
"""


GRAPHS = """
import sys, unittest
from io import StringIO
from unittest.mock import patch
import torch
from torch._inductor.cudagraph_utils import log_cudagraph_skip_and_bump_counter
from torch.testing._internal.common_utils import TEST_CUDA_GRAPH
from torch.testing._internal.inductor_utils import HAS_CUDA_AND_TRITON

@unittest.skipUnless(TEST_CUDA_GRAPH and HAS_CUDA_AND_TRITON, "needs a GPU")
class TestCuda(unittest.TestCase):
    def test_graph_fails(self):
        self.assertIsNone(torch.ones(4, device="cuda"))

    def test_graph_reads_what_is_logged(self):
        with patch.object(sys, "stderr", StringIO()):
            log_cudagraph_skip_and_bump_counter("no graph here")
            self.assertIn("no graph here", sys.stderr.getvalue())
"""


def pytorchs_suites(sources: Path, *arguments: str, identity: str = "openreg") -> dict[str, dict[str, Any]]:
    """Runs the PyTorch suites of libraries.toml on a small checkout of PyTorch. Returns the rows by test file."""
    files = {"test_small.py": GENERIC, "inductor/test_torchinductor.py": INDUCTOR, "test_cuda.py": GRAPHS}
    for name, text in files.items():
        file = sources / "pytorch" / "pytorch" / "test" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    rows = sources / "rows.json"
    libraries = (ROOT / "tests" / "tools" / "clients" / "libraries.toml").read_text()
    (sources / "libraries.toml").write_text(libraries.replace("test/test_torch.py", "test/test_small.py"))
    command = [
        sys.executable,
        "-m",
        "tests.tools.clients",
        "--sources",
        str(sources),
        "--identity",
        identity,
        "--json",
        str(rows),
    ]
    command += ["--libraries", str(sources / "libraries.toml"), *arguments]
    result = programs.run(*command, cwd=ROOT)
    assert result.returncode == 1, result.stderr + result.stdout  # there is an unexplained failure
    return {row["library"]: row for row in json.loads(rows.read_text())}


@pytest.mark.slow
@AS_CUDA
def test_pytorchs_device_generic_tests_are_compared_by_their_names_without_the_device(tmp_path: Path) -> None:
    (row,) = pytorchs_suites(tmp_path, "pytorch", identity="cuda").values()
    failures = row.pop("failures")
    assert row == {
        "library": "test/test_small.py",
        "collected": 6,
        "run here": 6,
        "skipped on a CPU machine, run here": 1,
        "passed on a CPU machine": 4,
        "passed on both": 3,
        "passed": 4,
        "failed, explained": 1,
        "causes": {"fails on the CPU too": 1},
        "failed": 1,
    }
    reasons = {name.rpartition("::")[2]: failure["reason"] for name, failure in failures.items()}
    assert reasons == {
        "test_fails_on_the_cpu_too_cuda": "fails without an accelerator too",
        "test_cpu_is_all_it_knows_cuda": "",
    }


@pytest.mark.slow
def test_pytorchs_inductor_suite_runs_on_the_device_and_goes_on_from_its_records(tmp_path: Path) -> None:
    arguments = ("--records", str(tmp_path / "kept"), "pytorch-inductor")
    (row,) = pytorchs_suites(tmp_path, *arguments).values()
    failures = row.pop("failures")
    assert row == {
        "library": "test/inductor/test_torchinductor.py",
        "collected": 4,
        "run here": 3,
        "skipped on a CPU machine, run here": 1,
        "passed on a CPU machine": 2,
        "passed on both": 1,
        "passed": 2,
        "failed, explained": 0,
        "causes": {},
        "failed": 1,
    }
    assert list(failures) == ["inductor_suite.py::CommonTemplateOPENREG::test_fails_on_the_device_openreg"]
    (records,) = (tmp_path / "kept" / "pytorch-inductor" / "openreg").iterdir()
    records.write_text(records.read_text().replace('"passed"', '"failed"'))
    (again,) = pytorchs_suites(tmp_path, *arguments).values()
    assert (again["passed"], again["failed"]) == (0, 3)  # the second run believes the records, and starts no test


@pytest.mark.slow
@AS_CUDA
def test_pytorchs_tests_of_graphs_need_no_triton(tmp_path: Path) -> None:
    (row,) = pytorchs_suites(tmp_path, "pytorch-graphs", identity="cuda").values()
    (failure,) = row.pop("failures")
    assert failure.endswith("test_graph_fails")
    assert (row["library"], row["collected"], row["passed"], row["failed"]) == ("test/test_cuda.py", 2, 1, 1)


def test_shards_divide_the_tests_alike_on_every_machine() -> None:
    from clients.recorder import in_shard, normal

    names = [f"test_a.py::TestA{{}}::test_{n}_{{}}_float32" for n in range(100)]
    for name in names:
        cpu, device = name.format("CPU", "cpu"), name.format("PRIVATEUSE1", "openreg")
        assert normal(cpu) == normal(device) == name.format("DEVICE", "DEVICE")
        assert [in_shard(cpu, f"{k}/3") for k in (1, 2, 3)] == [in_shard(device, f"{k}/3") for k in (1, 2, 3)]
        assert sum(in_shard(cpu, f"{k}/3") for k in (1, 2, 3)) == 1
    assert normal("test_a.py::TestA::test_to_cpu_x") == "test_a.py::TestA::test_to_cpu_x"
    assert normal("test_a.py::TestACPU::test_to_cpu_cpu[1]") == "test_a.py::TestADEVICE::test_to_cpu_DEVICE[1]"
