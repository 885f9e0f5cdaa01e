"""The fuzzer: a short run finds no difference, a wrong operator is found, and programs that once differed agree now."""

from __future__ import annotations

import sys

import pytest
from comparison import DEVICE
from fuzz import programs, worker
from fuzz.__main__ import fuzz, shrink
from programs import importing


@pytest.mark.slow
def test_random_programs_compute_what_they_compute_on_the_cpu() -> None:
    records = fuzz(programs=60, seed=20, device=DEVICE, jobs=1)
    assert [record["result"] for record in records] == ["same"] * 60
    lines = sum(len(record["lines"]) for record in records)
    assert sum(record["raised"] for record in records) < lines / 3
    # After a crash, the CPU alone writes the program again.
    (first,) = (record["lines"] for record in records if record["number"] == 0)
    again = worker.write_and_run({"seed": 20, "number": 0}, {"execution": "inline", "steps": 20}, "cpu")
    assert again["lines"] == first


@pytest.mark.slow
@pytest.mark.only_on("openreg", reason="about the device's queue")
def test_random_programs_whose_queue_runs_behind() -> None:
    records = fuzz(programs=40, seed=21, device=DEVICE, jobs=1, execution="chaos")
    assert [record["result"] for record in records] == ["same"] * 40


RUN = """
import torch
from fuzz import programs

try:
    programs.run({lines!r}, "openreg", values_at_end=True)
except programs.Difference as difference:
    print(difference)
torch.openreg.synchronize()
"""


@pytest.mark.only_on("openreg", reason="about the device's queue")
@pytest.mark.parametrize(
    ("lines", "difference"),
    [
        # normal_() is queued. Its error, raised by the next wait, is compared with the CPU's error of the same line.
        (["t1 = make((3,), torch.int8, 1)", "t1.normal_()", "t2 = t1 + 1"], ""),
        # On the CPU, line 2 raises before it names t2. On the device, line 2 names t2, and the last line raises at a
        # later operator than on the CPU.
        (["t1 = make((3,), torch.float32, 1)", "t2 = t1 & t1", "F.cross_entropy(t1 > 0, (t1 > 0).softmax(-1))"], ""),
        # An error that only the CPU raises, and one that only the device raises.
        (["if DEVICE == 'cpu': raise ValueError('no')"], "the device raises None, the CPU ValueError: no\n"),
        (
            ["if DEVICE != 'cpu': make((3,), torch.int8, 1).normal_()", "t1 = 2"],
            """the device raises NotImplementedError: "normal_kernel_cpu" not implemented for 'Char' at the end\n""",
        ),
    ],
)
def test_an_error_of_queued_work_is_compared_with_the_cpus_error_of_its_line(
    lines: list[str],
    difference: str,
    run_python,  # type: ignore[no-untyped-def]
) -> None:
    result = run_python(RUN.format(lines=lines), OPENREG_EXECUTION="async", PYTHONPATH=importing(__file__))
    assert (result.stdout, result.returncode) == (difference, 0), result.stderr


# An operator of the device, replaced by one that is wrong.
WRONG = """
import torch
library = torch.library.Library("aten", "IMPL")
library.impl("mul.Tensor", lambda a, b: torch.add(a, b), "PrivateUse1")
torch._the_library = library  # a registration lasts as long as its library
"""


@pytest.mark.slow
@pytest.mark.only_on("openreg", reason="replaces an operator of the device")
def test_a_wrong_operator_is_found_and_its_program_shrunk(capsys: pytest.CaptureFixture[str]) -> None:
    records = fuzz(programs=30, seed=1, device=DEVICE, jobs=1, setup=WRONG, most=1)
    found = [record for record in records if record["result"] != "same"]
    assert found and {record["result"] for record in found} == {"different"}
    shrunk = found[0]["shrunk"]
    assert 1 <= len(shrunk) <= 5
    programs.run(shrunk, DEVICE)  # agrees: this process has the right operator
    printed = capsys.readouterr().out
    assert repr(shrunk[-1]) in printed and "def make(" in printed


# A worker with the protocol of the fuzzer's, whose device aborts at two lines of each program.
CRASHING = """
import json, os, sys
print(json.dumps({}), flush=True) if sys.stdin.readline() else None
for line in sys.stdin:
    request = json.loads(line)
    lines = request.get("lines", [f"t{number} = {number}" for number in range(20)])
    if request.get("device") != "cpu" and {"t3 = 3", "t17 = 17"} <= {*lines}:
        os.abort()
    print(json.dumps({"result": "same", "detail": "", "lines": lines, "raised": 0}), flush=True)
"""


def test_a_program_that_crashes_is_written_again_and_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fuzz.__main__.WORKER", (sys.executable, "-c", CRASHING))
    (record,) = fuzz(programs=1, seed=1, device=DEVICE, jobs=1)
    assert (record["result"], record["shrunk"]) == ("crashed", ["t3 = 3", "t17 = 17"])
    printed = capsys.readouterr().out
    assert "program 0 of seed 1, crashed: SIGABRT" in printed and "t17 = 17" in printed and "def make(" in printed


def test_shrinking_keeps_what_is_needed_and_nothing_else() -> None:
    lines = [str(number) for number in range(40)]
    assert shrink(lines, lambda candidate: {"3", "21"} <= set(candidate)) == ["3", "21"]
    assert shrink(lines, lambda candidate: True) == []


def test_a_reproducer_runs_alone(run_python) -> None:  # type: ignore[no-untyped-def]
    lines = ["t1 = make((2,), torch.float32, 1)", "t2 = t1 * 'a'", "t3 = t1 + 1"]
    result = run_python(programs.script(lines, DEVICE, 3))
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("t2 = t1 * 'a': TypeError") == 2
    assert result.stdout.count("'t3': tensor(") == 2


# ---- What differs is seen ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "difference"),
    [
        ("t1 = torch.zeros(2, device=DEVICE) + (DEVICE != 'cpu')", "t1 is [1.0, 1.0], the CPU's [0.0, 0.0]"),
        ("t1 = torch.zeros(2 + (DEVICE != 'cpu'))", "t1 is on cpu"),
        ("t1 = torch.zeros(2 + (DEVICE != 'cpu'), device=DEVICE)", "shape of t1 is (3,), the CPU's (2,)"),
        ("v1 = torch.zeros(2, device=DEVICE).is_cpu", "v1 is False, the CPU's True"),
        ("if DEVICE != 'cpu': raise ValueError('no')", "the device raises ValueError: no, the CPU None"),
        ("torch.rand(1)", "v0 is"),  # on the device, too, it draws from the CPU's generator
    ],
)
def test_the_fuzzer_sees_each_kind_of_difference(line: str, difference: str) -> None:
    with pytest.raises(programs.Difference) as caught:
        programs.run([line], DEVICE)
    assert str(caught.value).startswith(difference)


# ---- Programs that once differed ---------------------------------------------------------------------------------

ONCE_DIFFERENT: dict[str, list[str]] = {
    "in-place conjugation called a stub that the device does not have": [
        "t1 = make((3,), torch.complex64, 1)",
        "t1.conj_physical_()",
    ],
}


@pytest.mark.parametrize("name", ONCE_DIFFERENT)
def test_a_program_that_once_differed_agrees_now(name: str) -> None:
    programs.run(ONCE_DIFFERENT[name], DEVICE)
