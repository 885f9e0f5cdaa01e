"""This backend passes the conformance kit, and the kit passes its own tests. `make mutants` runs the kit on mutants."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import sys
from pathlib import Path

import programs
import pytest
import torch
import yaml
from comparison import DEVICE
from programs import PYTEST, Done

from torch_openreg._cli import main
from torch_openreg._environment import all_variables

KIT = Path(__file__).resolve().parents[2] / "conformance"


def run(*command: str | Path) -> Done:
    path = os.pathsep.join(filter(None, [str(KIT), os.environ.get("PYTHONPATH")]))
    return programs.run(sys.executable, *command, cwd=KIT, PYTHONPATH=path)


@pytest.mark.slow
def test_the_device_conforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`make conformance` runs all checks.

    Not here: the sweeps, because tests/operators/test_ops_opinfo.py runs PyTorch's whole databases, and of the checks
    that start processes, which take seconds each, all but the first of each kind.
    """
    monkeypatch.syspath_prepend(KIT)
    from torch_conformance.registry import all_checks

    report = tmp_path / "report.json"
    quick = [name for name, check in all_checks().items() if check.quick]
    first = {name.rpartition("/")[0]: name for name in reversed(quick)}
    chosen = [n for n in quick if not n.startswith(("loads/", "processes/")) or n in first.values()]
    options = ["--quick", "--no-sweeps", "--quiet", "--strict-messages"]
    options += ["--jobs", "1"]  # each worker imports torch and its compiler
    options += ["--timeout", "600"]  # a busy machine takes longer than the default
    options += [f"--checks={name}" for name in chosen]
    result = run("-m", "torch_conformance", "--device", DEVICE, *options, "--json", report)
    assert result.returncode == 0, result.stdout + result.stderr
    checks = json.loads(report.read_text())["checks"]
    assert {check["result"] for check in checks} == {"passed", "not offered"}
    assert len(checks) == len(chosen) > 150 and {check["level"] for check in checks} == set(range(9))


@pytest.mark.slow
@pytest.mark.only_on("openreg", reason="the kit's own tests need no device")
def test_the_kits_own_tests_pass() -> None:
    result = run(*PYTEST[1:], "tests")
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_command_of_the_package_runs_the_kit_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr("subprocess.call", lambda command, env: started.append((command, env)) or 3)
    monkeypatch.delenv("TORCH_OPENREG_AUTOLOAD", raising=False)
    for device in ("npu", DEVICE):
        assert main(["conformance", "--device", device, "--quick"]) == 3
    assert started[0][0] == [sys.executable, "-m", "torch_conformance", "--device", "npu", "--quick"]
    assert [env.get("TORCH_OPENREG_AUTOLOAD") for _, env in started] == ["0", None]
    assert (Path(started[0][1]["PYTHONPATH"].split(os.pathsep)[0]) / "torch_conformance/__main__.py").is_file()


@pytest.mark.only_on("openreg", reason="about the sources")
def test_every_mutant_has_its_place_in_the_sources() -> None:
    from mutants import table

    names = {mutant.name for mutant in table.mutants()}
    assert len(table.sources()) >= 20  # sources() raises unless each place occurs exactly once
    assert set(table.EXPECTED_SURVIVORS) <= names
    for pattern, test in table.OWN_TESTS.items():
        assert fnmatch.filter(names, pattern), pattern
        file, _, function = test.partition("::")
        assert function in (KIT.parent / "tests" / file).read_text(), test


@pytest.mark.only_on("openreg", reason="about the sources")
def test_the_books_page_of_mutants_has_every_mutant() -> None:
    from mutants import table

    page = (KIT.parent / "docs/mutants.md").read_text()
    names = [mutant.name for mutant in table.mutants()]
    assert f"{len(names)} of {len(names)} mutants were tried." in page
    assert not [name for name in names if f"| `{name}` |" not in page]


@pytest.mark.only_on("openreg", reason="about the sources")
def test_every_override_has_a_mutant_or_a_reason() -> None:
    from mutants import table

    names, without = {mutant.name for mutant in table.mutants()}, set()
    for prefix, _, file, _, _ in table.OVERRIDES:
        declared = [path for path in (table.ROOT / file, (table.ROOT / file).with_suffix(".h")) if path.exists()]
        overrides = re.findall(r"(?m)^ .*?(~?\w+)\(.*\boverride\b", "".join(path.read_text() for path in declared))
        assert len(overrides) >= 8, file
        without |= {name for name in overrides if f"{prefix}.{name}" not in names}
    assert without == set(table.WITHOUT_MUTANT)


@pytest.mark.only_on("openreg", reason="about the sources")
def test_every_row_of_a_table_has_a_mutant() -> None:
    from mutants import table

    names = {mutant.name.replace(".", "_") for mutant in table.mutants()}
    for operator in torch._C._dispatch_get_all_op_names():
        if re.search(r"PrivateUse1: .* as (structured|unboxed)\b", torch._C._dispatch_dump(operator)):
            assert f"row_{operator.removeprefix('aten::')}".replace(".", "_") in names, operator
    rules = yaml.safe_load((KIT.parent / "csrc/aten/device_rules.yaml").read_text())
    for row in rules:
        assert {f"rule_{name}".replace(".", "_") for name in row["operators"].split()} <= names, row
    without = {variable.name for variable in all_variables() if f"environment_{variable.name}" not in names}
    assert without == set(table.OF_COMMANDS)
