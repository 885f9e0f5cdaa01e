"""Builds and tests what ``python -m torch_openreg new`` writes: ``python -m tests.package.build_new_backend``.

Everything happens below build/new, in environments of its own, and takes minutes. So the test suite runs only
tests/package/test_new_backend.py, and not this module. With --first-day the module measures how long the first day of a
vendor takes.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import programs

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "new"
FIRST_DAY_MINUTES = 15  # the limit, on a machine with two processors
# All tests of a new backend take half an hour. The first day runs only these, which the book names
# (docs/bring-up/new-backend.md), and the conformance kit.
FIRST_DAY_TESTS = (
    *(f"tests/operators/test_{area}.py" for area in ("amp", "autograd", "copy", "views")),
    *(f"tests/runtime/test_{area}.py" for area in ("device_module", "memory", "serialization", "storage")),
)

# For a project in which the file of examples/first_kernel is compiled.
USES = """
import torch
x, y = torch.tensor([3.0, 5.0]), torch.tensor([4.0, 12.0])
assert torch.hypot(x.to("{name}"), y.to("{name}")).tolist() == [5.0, 13.0]
from torch_{name}._cli import ops
assert ops.route_of("aten::hypot")[0] == "native"
"""
# A program for an environment with this package and the new one. `import torch` must work, and PrivateUse1 must belong
# to one of `owners`.
BESIDE = """
import torch
owner = torch._C._get_privateuse1_backend_name()
assert owner in {owners}, owner
assert torch.ones(2, device=owner).add(1).sum().item() == 4
"""


def processor_seconds() -> float:
    """Returns the processor time of all commands so far, and of the processes that they started."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class Steps:
    """Runs commands, measures the time and the processor time of each, and stops at the first that fails."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, float, float]] = []

    def run(self, what: str, *command: str | Path, folder: Path, **variables: str | None) -> None:
        start, computed = time.monotonic(), processor_seconds()
        variables = {"SKBUILD_BUILD_DIR": None, "MAKEFLAGS": None, "PYTHONPATH": None, **variables}
        print(f"==== {what}: {' '.join(map(str, command))}", flush=True)
        status = programs.start(*command, cwd=folder, new_interpreter=True, **variables).wait()
        self.taken.append((what, time.monotonic() - start, processor_seconds() - computed))
        if status != 0:
            self.report()
            sys.exit(f"{what}: exit status {status}")

    def report(self) -> tuple[float, float]:
        """Prints each step, and returns two sums: the seconds that passed, and the seconds of processor time."""
        total, computed = (sum(step[column] for step in self.taken) for column in (1, 2))
        for what, seconds, processor in [*self.taken, ("all", total, computed)]:
            print(f"{seconds:8.1f} s, {processor:8.1f} s of processors  {what}")
        return total, computed


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder


def write(steps: Steps, name: str, folder: Path, *kind: str) -> None:
    command = [sys.executable, "-m", "torch_openreg", "new", name, *kind, "--output", fresh(folder)]
    steps.run(f"new {name} {' '.join(kind)}".rstrip(), *command, folder=ROOT)


def whole(steps: Steps, name: str, arguments: str) -> Path:
    """Writes the default project, builds it, and runs its tests and its lint. Returns the Python of its environment."""
    folder = BUILD / name
    write(steps, name, folder)
    steps.run("format, as the README asks for it before the first build", "make", "format", folder=folder)
    steps.run("build", "make", "install", folder=folder)
    steps.run("tests", "make", "test-all", f"ARGS={arguments}", folder=folder)
    steps.run("lint", "make", "lint", folder=folder)
    return folder / ".venv-2.13.0" / "bin" / "python"


def beside(steps: Steps, name: str, python: Path) -> None:
    """Installs this package beside the new one. One gets PrivateUse1; if its autoload is off, the other one gets it."""
    steps.run(
        "this package beside it",
        python,
        "-m",
        "pip",
        "install",
        "--no-build-isolation",
        "--no-deps",
        ROOT,
        folder=BUILD,
    )
    for owners, variables in (
        ((name, "openreg"), {}),
        ((name,), {"TORCH_OPENREG_AUTOLOAD": "0"}),
        (("openreg",), {f"TORCH_{name.upper()}_AUTOLOAD": "0"}),
    ):
        code = BESIDE.format(owners=owners)
        steps.run(f"{' or '.join(owners)} has the device", python, "-c", code, folder=BUILD, **variables)


def small(steps: Steps, name: str, kind: str) -> None:
    """Writes the project of ``--minimal`` or ``--python``, installs it into an environment with torch, and runs it."""
    folder, environment = BUILD / f"{name}_{kind}", fresh(BUILD / f"{name}_{kind}_environment")
    write(steps, name, folder, f"--{kind}")
    steps.run("environment", sys.executable, "-m", "venv", environment, folder=BUILD)
    python = environment / "bin" / "python"
    steps.run("torch", python, "-m", "pip", "install", "torch==2.13.0", "setuptools", "pytest", folder=BUILD)
    steps.run("build", python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", ".", folder=folder)
    steps.run("tests", python, "-m", "pytest", "-q", "tests", folder=folder)


def first_day(steps: Steps, name: str) -> None:
    """Does what a vendor does on the first day: makes, builds, tests and measures a project, and adds one operator."""
    python, folder = whole(steps, name, f"-n 2 -q {' '.join(FIRST_DAY_TESTS)}"), BUILD / name
    steps.run("conformance", "make", "conformance", f"ARGS=--quick --html {BUILD / name}.html", folder=folder)
    shutil.copy(folder / "examples" / "first_kernel" / "Hypot.cpp", folder / "csrc" / "aten" / "native")
    steps.run("build with an operator of their own", "make", "install", folder=folder)
    steps.run("which computes", python, "-c", USES.format(name=name), folder=folder)
    steps.run("how many are borrowed", python, "-m", f"torch_{name}", "ops", "--borrowed", "--totals", folder=folder)
    minutes = steps.report()[0] / 60
    print(f"the first day took {minutes:.1f} minutes; the limit is {FIRST_DAY_MINUTES}")
    if minutes > FIRST_DAY_MINUTES:
        sys.exit(1)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.package.build_new_backend", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("--name", default="acme", help="the device's type (default: %(default)s)")
    parser.add_argument("--only", choices=("whole", "minimal", "python"), help="one of the three")
    parser.add_argument("--first-day", action="store_true", help=f"in under {FIRST_DAY_MINUTES} minutes")
    parser.add_argument("--tests", default="-q", metavar="ARGS", help="arguments for the new project's pytest")
    options = parser.parse_args(arguments)
    steps = Steps()
    if options.first_day:
        first_day(steps, options.name)
        return 0
    for kind in ("minimal", "python"):
        if options.only in (None, kind):
            small(steps, options.name, kind)
    if options.only in (None, "whole"):
        beside(steps, options.name, whole(steps, options.name, options.tests))
    steps.report()
    return 0


if __name__ == "__main__":
    sys.exit(main())
