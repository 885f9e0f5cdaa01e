"""The benchmark (`make bench`): every section runs and is reported. No test passes or fails by a measured time."""

from __future__ import annotations

import ast
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import programs
import pytest
import torch
from programs import Done

import benchmarks.__main__
from benchmarks import operators, targets, training
from benchmarks.report import Row

ROOT = Path(__file__).parents[2]


def run(*arguments: str | Path) -> Done:
    command = [sys.executable, "-m", "benchmarks", *arguments]
    return programs.run(*command, cwd=ROOT)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the processes of a benchmark print to stderr. A server starts them, because no time matters here."""
    printed: list[str] = []

    def start(command: list[str], *, env: dict[str, str], cwd: Path, check: bool, **_: object) -> Done:
        done = programs.run(*command, cwd=cwd, status=0, **{name: env.get(name) for name in {*os.environ, *env}})
        # A build of PyTorch with CUDA warns of a toolkit without a GPU.
        printed.extend(line for line in done.stderr.splitlines() if "No CUDA runtime is found" not in line)
        return done

    monkeypatch.setenv("KINETO_LOG_LEVEL", "10")  # the server has the variables that torch reads while it starts
    monkeypatch.setattr(benchmarks.__main__, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": start}))
    return printed


@pytest.mark.slow
def test_every_section_is_measured_shown_and_written(
    tmp_path: Path, errors: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["benchmarks", "--quick", "--threads", "1", "--json", str(tmp_path / "rows.json")]
    monkeypatch.setattr(sys, "argv", command)
    assert benchmarks.__main__.main() == 0
    stdout = capsys.readouterr().out
    assert errors == [], stdout
    written = json.loads((tmp_path / "rows.json").read_text())
    assert written["machine"]["torch"] == torch.__version__
    sections = {row["section"] for row in written["rows"]}
    assert sections == {
        "operators", "optimizers", "training", "queued", "interference", "copies", "allocation", "latency",
        "profiling", "import", "identities", "idle", "compiled",
    }  # fmt: skip
    for row in written["rows"]:
        assert math.isfinite(row["value"]), row
        assert row["name"] in stdout
    identities = {row["name"]: row["limit"] for row in written["rows"] if row["section"] == "identities"}
    assert (
        len(identities) == 52 and identities["import torch takes longer by"] == 20 and identities["median, all"] == 1.03
    )
    names = {row["name"] for row in written["rows"]}
    assert {operator.name for group in operators.OPERATORS.values() for operator in group} <= names
    assert set(training.RECIPES) <= names
    missed = sum(row["missed"] for row in written["rows"])
    aimed = sum(row["limit"] is not None for row in written["rows"])
    assert f"{aimed - missed} of {aimed} targets met" in stdout
    assert stdout.count("✗") == missed


def test_the_list_of_operators_is_the_fixed_one() -> None:
    assert [len(group) for group in operators.OPERATORS.values()] == [20, 6, 8, 8, 8]
    names = [operator.name for group in operators.OPERATORS.values() for operator in group]
    assert len(set(names)) == 50
    assert training.RECIPES.keys() == targets.TRAINING.keys()


def allocated(operator: operators.Operator, device: str) -> int:
    """The bytes that an operator on 1M elements allocates, on any device."""
    names = operators.operands("1M", device)
    exec(operator.statement, dict(names))  # a first call, because some memory is allocated only once
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        exec(operator.statement, dict(names))
    events = profile.profiler.kineto_results.events()
    return sum(max(event.nbytes(), 0) for event in events if event.name() == "[memory]")


@pytest.mark.parametrize(
    "operator", [o for group in operators.OPERATORS.values() for o in group if o.grows], ids=lambda o: o.name
)
def test_an_operator_allocates_what_it_allocates_on_the_cpu(operator: operators.Operator) -> None:
    # The device's attention returns a contiguous logsumexp, as its meta kernel says, so it copies the CPU kernel's one.
    copied = 4 * operators.operands("1M", "cpu")["query"][..., 0].numel() if operator.name == "attention" else 0
    # The device's allocations are rounded up to 512 bytes. The operands have a million bytes and more.
    assert abs(allocated(operator, "openreg") - copied - allocated(operator, "cpu")) < 4096


@pytest.mark.parametrize("operator", [o for group in operators.OPERATORS.values() for o in group], ids=lambda o: o.name)
def test_a_statement_computes_the_same_on_both_devices(operator: operators.Operator) -> None:
    computed = []
    for device in ("openreg", "cpu"):
        names = operators.operands("16", device)
        if isinstance(ast.parse(operator.statement).body[0], ast.Expr):
            result = eval(operator.statement, names)
        else:
            exec(operator.statement, names)
            result = names["accumulator"]
        assert result.device.type == device
        computed.append(result.cpu())
    if operator.name == "empty":
        assert computed[0].shape == computed[1].shape
    else:
        assert torch.equal(*computed)


def test_a_target_is_compared_with_the_rounded_figure_that_is_shown() -> None:
    assert not Row("a", 1.304, limit=1.3).missed
    assert Row("a", 1.31, limit=1.3).missed
    assert not Row("a", 5.0).missed


@pytest.mark.slow
def test_a_section_that_cannot_be_measured_is_named_and_is_the_exit_status() -> None:
    result = run("--quick", "--only", "latency", "--only", "idle", "--device", "nonsense")
    assert result.returncode == 1
    words = "Calls that should cost next to nothing, threads: 2: not measured, a process ended with status 1"
    assert words in result.stdout
    assert "device type at start of device string: nonsense" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--only", "nothing"], "argument --only: invalid choice: 'nothing'"),
        (["--threads", "1,0"], "argument --threads: '1,0' is not a list of whole numbers of at least 1, such as 1,2"),
    ],
)
def test_a_bad_argument_is_named(arguments: list[str], words: str) -> None:
    result = run(*arguments)
    assert result.returncode == 2 and words in result.stderr
