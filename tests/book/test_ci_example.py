"""examples/ci/github-actions.yml does what docs/test/index.md says: its steps are run, on a project with planted bugs.

Every `run:` step is executed as it is written, by the shell that GitHub uses, in an environment without torch_openreg.
Two things differ from GitHub. `pip install` finds the packages that this environment already has, torch among them. And
the repository that the job builds from is a stand-in: its "build" hands out this environment's package as a wheel,
since the same command on the real sources takes minutes and is tested in test_package.py.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import os
import re
import shutil
import sysconfig
import venv
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import programs
import pytest
import torch
import yaml
from cuda_builds import AS_CUDA
from environments import Environment
from programs import Done

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "ci"
WORKFLOW: dict[str, Any] = yaml.safe_load((EXAMPLE / "github-actions.yml").read_text())
JOB: dict[str, Any] = WORKFLOW["jobs"]["test"]
TESTS = ("Test", "Test with work delayed and memory poisoned")

# Action -> the inputs that the file must give it, and no others.
ACTIONS = {
    "actions/checkout@v6": set(),
    "actions/setup-python@v6": {"python-version"},
    "actions/cache@v5": {"path", "key"},
}


def expand(text: object, context: Mapping[str, str]) -> str:
    """What GitHub puts in place of `${{ name }}`; a name that is not in the context is an error."""
    return re.sub(r"\$\{\{ ([\w.-]+) \}\}", lambda found: context[found[1]], str(text))


@dataclass
class Machine:
    """A runner: a Python without torch_openreg, a home folder, and the caches that earlier jobs have left."""

    folder: Path
    variables: dict[str, str]
    matrix: dict[str, str]
    caches: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        (self.folder / "home").mkdir(parents=True)
        python = self.folder / "python"
        venv.create(python, symlinks=True)
        others = self.folder / "others"  # every package of this environment but ours
        others.mkdir()
        for path in Path(sysconfig.get_path("purelib")).iterdir():
            if "torch_openreg" not in path.name:
                (others / path.name).symlink_to(path)
        packages = python / "lib" / f"python{sysconfig.get_python_version()}" / "site-packages"
        (packages / "others.pth").write_text(str(others))

    def run_job(
        self, project: Path, only: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> list[tuple[str, str]]:
        """Runs all steps, or those in ``only``, until one fails. Returns (name, output) of each step that ran.

        The name of a step that failed begins with "FAILED: ". ``env`` is added to the job's own variables.
        """
        context = {f"vars.{name}": "" for name in ("TORCH_INDEX",)}
        context |= {f"matrix.{name}": value for name, value in self.matrix.items()}
        variables = {name: expand(value, context) for name, value in WORKFLOW["env"].items()} | self.variables
        context |= {f"env.{name}": value for name, value in variables.items()}
        variables |= {name: expand(value, context) for name, value in (JOB["env"] | dict(env or {})).items()}
        to_save: dict[str, Path] = {}
        ran = []
        for step in JOB["steps"]:
            if only and step["name"] not in only:
                continue
            if found := re.fullmatch(r"(steps\.\w+\.outputs\.[\w-]+) != '(\w+)'", step.get("if", "")):
                if context[found[1]] == found[2]:
                    continue
            else:
                assert "if" not in step
            if "run" in step:
                own = {name: expand(value, context) for name, value in step.get("env", {}).items()}
                result = self.run(expand(step["run"], context), project, variables | own)
                failed = "FAILED: " if result.returncode else ""
                ran.append((f"{failed}{step['name']}", result.stdout))
                if failed:
                    return ran
            elif step["uses"].startswith("actions/cache@"):
                path = Path(step["with"]["path"].replace("~", str(self.folder / "home")))
                key = expand(step["with"]["key"], context)
                hit = key in self.caches
                if hit:
                    shutil.copytree(self.caches[key], path)
                else:
                    to_save[key] = path
                context[f"steps.{step['id']}.outputs.cache-hit"] = "true" if hit else ""
        for key, path in to_save.items():  # after a job that succeeded
            self.caches[key] = Path(shutil.copytree(path, self.folder / "caches" / str(len(self.caches))))
        return ran

    def run(self, script: str, project: Path, variables: Mapping[str, str]) -> Done:
        ours = re.compile("OPENREG_|TORCH_OPENREG_|TEST_DEVICE|PYTHON|SKBUILD_")
        paths = {"PATH": f"{self.folder}/python/bin:{os.environ['PATH']}", "HOME": str(self.folder / "home")}
        others = {name: None for name in os.environ if ours.match(name)}
        return programs.run("bash", "-e", "-c", script, cwd=project, merged=True, **(others | paths | dict(variables)))


def make_wheel(folder: Path) -> Path:
    """A wheel of what is installed in this environment."""
    environment = Environment(folder / "environment")
    environment.install()
    packages = environment.site_packages
    (info,) = packages.glob("torch_openreg-*.dist-info")
    for file in info.iterdir():
        if file.name not in ("METADATA", "WHEEL", "entry_points.txt"):  # the others say how the package was installed
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    (tag,) = re.findall(r"^Tag: (.+)$", (info / "WHEEL").read_text(), re.MULTILINE)
    wheel = folder / f"{info.name.removesuffix('.dist-info')}-{tag}.whl"
    record = f"{info.name}/RECORD"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        lines = []
        for file in [*packages.glob("torch_openreg_*.p*"), *packages.glob("torch_openreg*/**/*")]:
            if file.is_file():
                name, content = str(file.relative_to(packages)), file.read_bytes()
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                lines.append(f"{name},sha256={digest},{len(content)}")
                archive.writestr(name, content)
        archive.writestr(record, "\n".join([*lines, f"{record},,", ""]))
    return wheel


BACKEND = """
import shutil
from pathlib import Path

def build_wheel(folder, config_settings=None, metadata_directory=None):
    (wheel,) = Path(__file__).parent.glob("*.whl")
    shutil.copy(wheel, folder)
    return wheel.name
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a git repository. Its pinned revision can be built; a later revision cannot."""
    folder = tmp_path_factory.mktemp("repository")
    wheel = make_wheel(tmp_path_factory.mktemp("wheel"))
    shutil.copy(wheel, folder)
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    (folder / "backend.py").write_text(BACKEND)

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
        programs.run("git", *identity, *arguments, cwd=folder, status=0)

    git("init")
    git("add", ".")
    git("commit", "-m", "builds")
    git("tag", WORKFLOW["env"]["TORCH_OPENREG_REVISION"])
    (folder / "backend.py").write_text("raise SystemExit('not the pinned revision')")
    git("commit", "-a", "-m", "does not build")
    return folder.as_uri()


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the step with actions/checkout leaves."""
    return Path(shutil.copytree(EXAMPLE / "sample_project", tmp_path_factory.mktemp("workspace") / "project"))


@pytest.fixture(scope="module")
def machine(repository: str, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    variables = {"TORCH_OPENREG_REPOSITORY": repository, "TORCH_VERSION": torch.__version__.partition("+")[0]}
    return Machine(tmp_path_factory.mktemp("runner") / "1", variables, {"python": sysconfig.get_python_version()})


@pytest.fixture(scope="module")
def first_job(machine: Machine, project: Path) -> list[tuple[str, str]]:
    return machine.run_job(project)


# ---- The file --------------------------------------------------------------------------------------------------------


def test_every_step_runs_commands_or_a_known_action() -> None:
    for step in JOB["steps"]:
        if "run" in step:
            assert set(step) <= {"name", "if", "env", "run"}, step
        else:
            assert set(step) <= {"name", "id", "uses", "with"}, step
            assert set(step.get("with", {})) == ACTIONS[step["uses"]]
    assert [step["uses"] for step in JOB["steps"] if "uses" in step] == list(ACTIONS)


def test_the_pinned_revision_is_the_tag_of_this_version() -> None:
    version = importlib.metadata.version("torch_openreg").partition("+")[0]
    assert WORKFLOW["env"]["TORCH_OPENREG_REVISION"] == f"v{version}"


def test_a_wheel_is_found_again_only_for_what_it_was_built_for() -> None:
    (cache,) = [step for step in JOB["steps"] if step.get("uses", "").startswith("actions/cache@")]
    context = {"env.TORCH_OPENREG_REVISION": "v1", "env.TORCH_VERSION": "2.13.0", "matrix.python": "3.11"}
    keys = [expand(cache["with"]["key"], {**context, name: "other"}) for name in ("", *context)]
    assert len(set(keys)) == 4 and JOB["runs-on"] in keys[0]


def test_every_python_of_the_matrix_is_supported() -> None:
    versions = [tuple(map(int, python.split("."))) for python in JOB["strategy"]["matrix"]["python"]]
    assert versions and all((3, 10) <= version <= (3, 14) for version in versions)


# ---- The job ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_job_builds_installs_and_passes(first_job: list[tuple[str, str]]) -> None:
    assert [name for name, _ in first_job] == [step["name"] for step in JOB["steps"] if "run" in step], first_job[-1]
    output = dict(first_job)
    assert re.findall(r"(\d+) passed.* in ", output[TESTS[0]]) == ["6"]
    assert re.findall(r"(\d+) passed.* in ", output[TESTS[1]]) == ["6"]
    assert "(OPENREG_EXECUTION=chaos OPENREG_POISON=1), seed 0, each test with 3 seeds" in output[TESTS[1]]


@pytest.mark.slow
def test_the_next_job_takes_the_wheel_from_the_cache(
    first_job: list[tuple[str, str]], machine: Machine, project: Path, tmp_path: Path
) -> None:
    second = Machine(tmp_path / "2", machine.variables, machine.matrix, machine.caches)
    steps = [step["name"] for step in JOB["steps"] if step["name"] not in TESTS]
    ran = second.run_job(project, steps)
    built = [name for name, _ in first_job if name not in TESTS]
    assert [name for name, _ in ran] == [name for name in built if name != "Build the wheel"] != built, ran[-1]


@pytest.mark.slow
def test_a_job_without_the_device_fails(machine: Machine, project: Path, tmp_path: Path) -> None:
    without = Machine(tmp_path / "3", machine.variables, machine.matrix)
    ((step, output),) = without.run_job(project, TESTS)
    assert step == "FAILED: Test" and "device type at start of device string: openreg" in output


@pytest.mark.slow
@AS_CUDA
def test_with_two_lines_of_the_book_the_job_tests_the_device_cuda(
    first_job: list[tuple[str, str]], machine: Machine, project: Path
) -> None:
    page = (ROOT / "docs" / "test" / "cuda.md").read_text()
    (block,) = re.findall(r"^```yaml\n(.+?)^```", page, re.MULTILINE | re.DOTALL)
    env = yaml.safe_load(block)["env"]
    assert env.keys() == {"TORCH_OPENREG_AS", "TEST_DEVICE"} and env["TEST_DEVICE"] != JOB["env"]["TEST_DEVICE"]
    ((_, output),) = machine.run_job(project, TESTS[:1], env)
    assert re.findall(r"(\d+) passed.* in ", output) == ["6"], output


@dataclass
class Bug:
    line: str
    with_the_bug: str
    step: str
    test: str
    message: str


MIXED = "RuntimeError: Expected all tensors to be on the same device, but "
# A bug replaces a line of the program by a wrong one. With all bugs, the tests still pass on the CPU.
BUGS = {
    "a tensor left on the CPU": Bug(
        "torch.arange(x.shape[-1], device=x.device)",
        "torch.arange(x.shape[-1])",
        TESTS[0],
        "test_positions_are_added",
        f"{MIXED}found at least two devices, openreg:1 and cpu!",
    ),
    "a hard-coded index": Bug(
        "classes, device=labels.device)",
        "classes, device=labels.device.type)",
        TESTS[0],
        "test_labels_become_vectors",
        f"{MIXED}got index is on openreg:1, different from other tensors on openreg:0",
    ),
    "host access to device memory": Bug(
        "x.cpu().numpy()",
        "x.numpy()",
        TESTS[0],
        "test_a_histogram_counts_every_value",
        "TypeError: can't convert openreg:1 device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first.",
    ),
    "a path for out of memory that was never taken": Bug(
        "size //= 2",
        "size /= 2",
        TESTS[0],
        "test_a_batch_that_does_not_fit_becomes_smaller",
        "TypeError: slice indices must be integers or None or have an __index__ method",
    ),
    "a device chosen by asking for CUDA": Bug(
        'torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")',
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        TESTS[0],
        "test_the_default_device_is_the_accelerator",
        "AssertionError: assert 'cpu' == 'openreg'",
    ),
    "a missing synchronisation": Bug(
        "        torch.accelerator.synchronize(x.device)",
        "        pass",
        TESTS[1],
        "test_what_is_downloaded_has_arrived",
        "AssertionError: assert False",
    ),
}


def with_bugs(project: Path, folder: Path, *bugs: Bug) -> Path:
    copy = Path(shutil.copytree(project, folder))
    source = (copy / "features.py").read_text()
    for bug in bugs:
        assert source.count(bug.line) == 1
        source = source.replace(bug.line, bug.with_the_bug)
    (copy / "features.py").write_text(source)
    return copy


@pytest.mark.slow
def test_the_job_catches_each_planted_bug(
    first_job: list[tuple[str, str]], machine: Machine, project: Path, tmp_path: Path
) -> None:
    """One job for all bugs that a step finds: each fails its own test, and no other test fails."""
    for number, step in enumerate(TESTS):
        bugs = [bug for bug in BUGS.values() if bug.step == step]
        *passed, (failed, output) = machine.run_job(with_bugs(project, tmp_path / str(number), *bugs), TESTS)
        assert failed == f"FAILED: {step}"
        assert [name for name, _ in passed] == list(TESTS[:number])
        tests = re.findall(r"^FAILED test_features\.py::(\w+)", output, re.MULTILINE)
        assert sorted(tests) == sorted(bug.test for bug in bugs)
        assert not [bug for bug in bugs if bug.message not in output], output


@pytest.mark.slow
def test_on_the_cpu_no_test_finds_a_planted_bug(machine: Machine, project: Path, tmp_path: Path) -> None:
    copy = with_bugs(project, tmp_path / "project", *BUGS.values())
    result = machine.run("python -m pytest", copy, {"TEST_DEVICE": "cpu", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert re.findall(r"= (\d+ passed, \d+ skipped) in ", result.stdout) == ["5 passed, 1 skipped"], result.stdout


@pytest.mark.slow
def test_a_suite_that_never_used_the_device_fails(
    first_job: list[tuple[str, str]], machine: Machine, tmp_path: Path
) -> None:
    shutil.copy(EXAMPLE / "sample_project" / "conftest.py", tmp_path)
    (tmp_path / "test_nothing.py").write_text("import torch\ndef test_on_the_cpu(): assert torch.ones(1).item() == 1\n")
    ((step, output),) = machine.run_job(tmp_path, TESTS)
    assert step == "FAILED: Test" and "ERROR test_nothing.py::test_on_the_cpu - " in output
