"""``python -m torch_openreg check``: finds a bug with its line, and nothing in a correct program."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import programs
import pytest
from comparison import DEVICE

from torch_openreg.simulator._cli import check as command
from torch_openreg.simulator.check import _judge, _plan, _processes, _reports, _session
from torch_openreg.simulator.check._judge import Finding, Judge, Reference
from torch_openreg.simulator.check._plan import Place, Run
from torch_openreg.simulator.check._processes import NO_LIMITS, Clock, Limits, OutOfTime, Result
from torch_openreg.simulator.check._server import Server
from torch_openreg.simulator.check._session import Options, Session

PROGRAMS = Path(__file__).parent / "check_programs"
GALLERY = Path(__file__).parents[2] / "examples" / "gallery"


# ---- which runs there are --------------------------------------------------------------------------------------------


def test_faults_are_tried_at_the_first_the_last_and_the_first_call_of_each_line() -> None:
    rows = [[1, 10, "a.py", 1], [11, 90, "a.py", 2], [91, 100, "b.py", 7]]
    assert _plan.places("malloc", 100, rows, 4) == [
        Place("malloc", 1, "a.py", 1),
        Place("malloc", 11, "a.py", 2),
        Place("malloc", 91, "b.py", 7),
        Place("malloc", 100, "b.py", 7),
    ]
    twelve = [place.number for place in _plan.places("copy", 100, rows, 12)]
    assert len({*twelve}) == 12 and {1, 11, 91, 100} <= {*twelve}
    assert [place.number for place in _plan.places("copy", 3, [], 12)] == [1, 2, 3]
    assert _plan.places("copy", 0, [], 12) == _plan.places("copy", 5, [], 0) == []


def test_the_kinds_of_faults_alternate() -> None:
    runs = _plan.fault_runs([Place("malloc", 1), Place("malloc", 2), Place("copy", 1)])
    assert [run.settings["OPENREG_FAULTS"] for run in runs] == ["malloc:1=oom", "copy:1=failure", "malloc:2=oom"]


def test_every_second_fault_happens_in_one_rank_only() -> None:
    chosen = [Place(point, number) for point in ("malloc", "copy") for number in (1, 2, 3, 4)]
    assert _plan.in_single_ranks(chosen, []) == _plan.in_single_ranks(chosen, ["0"]) == chosen
    faults = [place.fault for place in _plan.in_single_ranks(chosen, ["0", "1"])]
    assert faults[:4] == ["malloc:1=oom", "rank1@malloc:2=oom", "malloc:3=oom", "rank0@malloc:4=oom"]
    assert faults[5] == "rank1@copy:2=failure"


# ---- what a run shows ------------------------------------------------------------------------------------------------


def result(
    status: int | None = 0,
    stdout: str = "1.5\n",
    stderr: str = "",
    allocated: int = 0,
    fired: int = 1,
) -> Result:
    faults = [{"text": "", "seen": 1, "fired": fired}]
    record = {"counts": {}, "faults": faults, "reports": [], "allocated": allocated, "forced": 0}
    return Result({}, status, stdout, stderr, {"model.pt": "a"}, [record], 1.0, Path())


def judged(later: Result, kind: str = "fault", first: Result | None = None) -> list[Finding]:
    judge = Judge("/project/train.py", Path("/project"), lambda file: "/lib/" not in file)
    first = first or result()
    judge.reference = Reference(first, first, "all")
    run = Run(kind, {}, Place("malloc", 3, "/project/train.py", 9) if kind == "fault" else None)
    return list(judge.judge(run, later))


TRACEBACK = """Traceback (most recent call last):
  File "/project/train.py", line 7, in step
  File "/lib/torch/nn.py", line 70, in forward
{error}
"""
INJECTED = "torch.OutOfMemoryError: out of memory (injected by malloc:3=oom)"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


@pytest.mark.parametrize(
    ("later", "kind", "line"),
    [
        (result(1, "", TRACEBACK.format(error=INJECTED)), "", 0),
        (result(3, "out of memory, bye\n"), "", 0),
        (result(fired=0, stdout="2\n"), "", 0),
        (result(), "", 0),
        (result(None), "hang", 9),
        (result(-signal.SIGSEGV), "crash", 9),
        (result(stdout="2.5\n"), "swallowed", 9),
        (result(stdout="nan\nout of memory\n"), "wrong", 9),
        (result(stdout="out of memory, again in two parts\n2.5\n"), "wrong", 9),
        (result(stdout="out of memory, again in two parts\n1.5\n"), "", 0),
        (result(stdout="out of memory, retrying the batch\n2.5\n"), "wrong", 9),
        (result(allocated=512), "leak", 9),
        (
            result(1, "", TRACEBACK.format(error="RuntimeError: Expected all tensors to be on the same device")),
            "recovery",
            7,
        ),
        (result(1, "", TRACEBACK.format(error="StopIteration")), "recovery", 7),
        (result(1, "", TRACEBACK.format(error="EOFError: Ran out of input")), "recovery", 7),
        (result(1, "", TRACEBACK.format(error=INJECTED) + "\n" + TRACEBACK.format(error="EOFError")), "", 0),
        (result(1, "", TRACEBACK.format(error="RuntimeError: the loader has failed")), "", 0),
        (
            result(1, "", TRACEBACK.format(error=INJECTED) + DURING + TRACEBACK.format(error="TypeError: a float")),
            "recovery",
            7,
        ),
    ],
)
def test_what_a_fault_leads_to(later: Result, kind: str, line: int) -> None:
    found = judged(later)
    assert [(each.kind, each.file, each.line, each.note) for each in found] == (
        [(kind, "/project/train.py", line, False)] if kind else []
    )


LAUNCHER = """Traceback (most recent call last):
  File "/lib/torch/distributed/run.py", line 5, in run
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


@pytest.mark.parametrize("has_group", [True, False])
def test_the_error_of_a_rank_is_that_of_the_program(has_group: bool) -> None:
    def rank(number: int, text: str) -> str:
        return "".join(f"[rank{number}]: {line}" if line.strip() else line for line in text.splitlines(True))

    memory = "torch.OutOfMemoryError: OpenReg out of memory. Tried to allocate 4.00 MiB."
    failed = TRACEBACK.format(error=memory) + DURING + TRACEBACK.format(error="TypeError: a float")
    closed = TRACEBACK.replace("7", "8").format(error="RuntimeError: Connection closed by peer")
    (found,) = judged(result(1, "", (rank(0, failed) + rank(1, closed) if has_group else failed) + LAUNCHER))
    assert (found.kind, found.line) == ("recovery", 7)
    assert found.message == "after malloc:3=oom the handler of the failure fails: TypeError: a float"
    assert not judged(result(1, "", rank(1, TRACEBACK.format(error=memory)) + LAUNCHER))
    goes_on = TRACEBACK.format(error="TypeError: a float") + "torch.OutOfMemoryError: skipped\n"
    (found,) = judged(result(1, "", (rank(0, goes_on) if has_group else goes_on) + LAUNCHER))
    assert found.message == "after malloc:3=oom the program goes on, and fails later: TypeError: a float"


KILLED = """
Failures:
[1]:
  rank      : 0 (local_rank: 0)
  exitcode  : {other} (pid: 11)
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_08:00:00
  rank      : 1 (local_rank: 1)
  exitcode  : {code} (pid: 12)
  traceback : Signal 9 (SIGKILL) received by PID 12
"""


def test_a_signal_that_ends_a_rank_is_a_crash_in_the_line_that_ran() -> None:
    judge = Judge("/project/train.py", Path("/project"), lambda file: "/lib/" not in file)

    def judged_first(stderr: str) -> Finding:
        (found,) = judge.plain(
            Result({}, 1, "", stderr, {}, [], 1.0, Path(), last_lines={"1": ("/project/train.py", 12)})
        )
        return found

    for text in (
        KILLED.format(other=1, code=-9),
        KILLED.format(other=-9, code=1).replace("rank      : 0", "rank      : 1"),
    ):
        found = judged_first(LAUNCHER + text)
        assert (found.kind, found.line, found.message) == ("crash", 12, "SIGKILL ends rank 1")
    found = judged_first("torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV")
    assert (found.kind, found.line, found.message) == ("crash", 12, "SIGSEGV ends rank 1")
    # torchrun ends the other ranks, and a rank may abort because another one has failed.
    failed = "".join(f"[rank0]: {line}" for line in TRACEBACK.format(error="RuntimeError: no").splitlines(True))
    for code in (-15, -6):
        found = judged_first(failed + LAUNCHER + KILLED.format(other=1, code=code))
        assert (found.kind, found.line, found.message) == ("error", 7, "RuntimeError: no")
    (found,) = judged(result(1, "", LAUNCHER + KILLED.format(other=1, code=-9)))
    assert (found.kind, found.line, found.message) == ("crash", 9, "SIGKILL ends rank 1 after malloc:3=oom")


def test_a_rank_that_goes_on_alone_after_a_fault_is_a_finding() -> None:
    closed = "".join(f"[rank0]: {line}" for line in TRACEBACK.format(error="RuntimeError: closed").splitlines(True))
    later = result(1, "skip the batch\n", closed + LAUNCHER + KILLED.format(other=1, code=1).partition("Root")[0])

    def judged_in_rank(later: Result, ended: str) -> list[Finding]:
        later.records[0]["rank"] = ended
        place = Place("malloc", 3, "/project/train.py", 9, rank="1")
        judge = Judge("/project/train.py", Path("/project"), lambda file: "/lib/" not in file)
        judge.reference = Reference(result(), result(), "all")
        return list(judge.judge(Run("fault", {"OPENREG_FAULTS": place.fault}, place), later))

    (found,) = judged_in_rank(later, "1")
    assert (found.kind, found.line) == ("recovery", 9)
    assert found.message == (
        "after rank1@malloc:3=oom rank 1 goes on to its end, and another rank fails: RuntimeError: closed"
    )
    assert not judged_in_rank(later, "0")  # torchrun has ended rank 1
    both = result(1, "skip the batch\n", closed + LAUNCHER + KILLED.format(other=1, code=1))
    assert not judged_in_rank(both, "1")  # it has failed, as it should


def test_the_line_in_which_a_signal_ends_a_process_is_known(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import os, torch\n\nx = 1\nos.kill(os.getpid(), 9)  # BUG\n")
    (tmp_path / "records").mkdir()
    ended = programs.run(
        sys.executable, "program.py", cwd=tmp_path, OPENREG_CHECK=f"{tmp_path / 'records'}:record", RANK="1"
    )
    assert ended.returncode == -signal.SIGKILL
    found = _processes._last_lines(tmp_path / "records", tmp_path, Path("/project"))
    assert found == {"1": ("/project/program.py", 4)}


FORKS = """
import multiprocessing, torch
print("parent")
children = [multiprocessing.get_context("fork").Process(target=print, args=(i,)) for i in range(2)]
for child in children: child.start()
for child in children: child.join()
"""


def test_each_rank_and_each_child_of_multiprocessing_prints_for_itself(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FORKS)

    def run(rank: str, output: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **rank_of(rank), "OPENREG_CHECK": f"{tmp_path / 'records'}:"}
        # programs.run has a pipe for the output.
        command = [sys.executable, str(tmp_path / "program.py")]
        return subprocess.run(command, env=environment, stdout=output, text=True, check=True)  # noqa: TID251

    def rank_of(rank: str) -> dict[str, str]:
        return {"RANK": rank} if rank else {}

    for rank, printed in (("1", ["0\n", "1\n", "parent\n"]), ("", ["0\n", "1\n"])):
        (tmp_path / "records").mkdir()
        with open(tmp_path / "stdout", "w") as output:
            run(rank, output)
        assert (tmp_path / "stdout").read_text() == ("" if rank else "parent\n")
        assert [path.read_text() for path in sorted((tmp_path / "records").glob("*.stdout"))] == printed
        shutil.rmtree(tmp_path / "records")
    (tmp_path / "records").mkdir()
    assert sorted(run("1", subprocess.PIPE).stdout.split()) == ["0", "1", "parent"]  # the program reads it


def test_other_numbers_after_a_smaller_batch_are_a_note() -> None:
    (note,) = judged(result(stdout="1.6\n", stderr="out of memory: again with half of the batch"))
    assert note.note and "it prints '1.6', and otherwise '1.5'" in note.message
    message = "failed: OpenReg out of memory. Tried to allocate 16 bytes. Free tensors, use a smaller batch"
    (found,) = judged(result(stdout="1.6\n", stderr=message))
    assert not found.note  # the advice is the device's


def test_another_rounding_after_a_failure_is_a_note_and_in_another_order_a_finding() -> None:
    first, later = result(stdout="mean 0.333333, 3\n"), result(stdout="mean 0.333334, 3\n")
    (note,) = judged(later, first=first)
    assert note.note and "with another rounding: it prints 'mean 0.333334, 3'" in note.message
    assert not judged(later, "schedule", first)[0].note
    for text in ("mean 0.343333, 3\n", "mean 0.333334, 4\n", "mean nan, 3\n", "mean 0.333334, 3\n0.5\n"):
        assert [each.kind for each in judged(result(stdout=text), first=first)] == ["swallowed"]
    assert not _judge._is_rounding("1.5", "1.6") and _judge._is_rounding("1.2345", "1.2346")


def test_a_program_that_names_the_failure_and_leaves_out_a_part_is_a_note() -> None:
    first = result(stdout="a 1\nb 2\nc 3\n")
    told = "b failed: out of memory (injected by malloc:3=oom)\n"
    (note,) = judged(result(stdout=f"a 1\n{told}c 3\n"), first=first)
    assert note.note and note.message.endswith("after malloc:3=oom, names it, and leaves out a part of its results")
    later = result(stdout=f"a 1\n{told}")
    later.files = {}
    assert [each.note for each in judged(later, first=first)] == [True]
    later.files = {"model.pt": "b"}
    for text in ("a 1\nfailed, out of memory\nc 3\n", f"a 1\n{told}c 4\n", f"c 3\n{told}a 1\n"):
        assert [each.note for each in judged(result(stdout=text), first=first)] == [False]
    assert [each.note for each in judged(later, first=first)] == [False]


def test_a_result_that_is_called_an_error_tells_of_no_failure() -> None:
    (found,) = judged(result(stdout="test error 0.75\n"), first=result(stdout="test error 0.5\n"))
    assert found.kind == "swallowed"


def test_another_order_must_not_change_the_output_or_a_file() -> None:
    (found,) = judged(result(stdout="nan\n"), "schedule")
    assert found.kind == "schedule" and "it prints 'nan', and otherwise '1.5'" in found.message
    other = result()
    other.files = {"model.pt": "b"}
    (found,) = judged(other, "schedule")
    assert "the file model.pt, which it writes, has other bytes" in found.message
    assert "without the schedule's choice" not in found.message
    other.records[0]["forced"] = 2
    (found,) = judged(other, "schedule")
    assert "2 items ran without the schedule's choice, so its name alone does not give the order" in found.message


def test_a_hint_of_the_device_in_a_line_of_the_program_is_a_finding() -> None:
    judge = Judge("/project/train.py", Path("/project"), lambda file: "/lib/" not in file)
    text = "f got a tensor on 'openreg', but its custom_fwd(device_type='cuda') follows only that, so it casts nothing. Pass it."
    warned = "".join(f"{file}:12: UserWarning: {text}\n  f(x)\n" for file in ("/lib/apex.py", "/project/model.py"))
    (found,) = judge.hints(result(stderr=warned + "/project/model.py:3: UserWarning: the batch is small\n"))
    assert (found.kind, found.file, found.line, found.message) == ("hint", "/project/model.py", 12, text)


def test_poison_must_not_change_the_output() -> None:
    with_it = "if new memory holds 0xFF bytes (NaN), which nobody may read before a write,"
    (found,) = judged(result(stdout="nan\n"), "poison")
    assert (found.kind, found.message) == ("init", f"{with_it} it prints 'nan', and otherwise '1.5'")
    (found,) = judged(result(1, "", TRACEBACK.format(error="IndexError: index -1 is out of range")), "poison")
    assert (found.kind, found.line) == ("init", 7)
    assert found.message == f"{with_it} the program fails: IndexError: index -1 is out of range"
    assert not judged(result(), "poison")


def test_in_the_schedule_late_a_parent_waits_for_the_process_that_it_forks() -> None:
    def judged_late(first: str, later: str) -> list[Finding]:
        judge = Judge("/project/train.py", Path("/project"), lambda file: "/lib/" not in file)
        judge.forks = [("/project/train.py", 4)]
        judge.reference = Reference(result(stdout=first), result(stdout=first), "all")
        settings = {"OPENREG_EXECUTION": "late"}
        changed = result(stdout=later)
        changed.settings = settings
        return list(judge.judge(Run("schedule", settings), changed))

    (found,) = judged_late("reused\nsees 2.0\n", "sees 1.0\nreused\n")
    assert (found.kind, found.line) == ("schedule", 4)
    assert found.message == (
        "if the parent waits for the process that it forks here, which shares its pinned memory, it prints 'sees 1.0', "
        "which it does not print otherwise"
    )
    # Nothing says which of two processes prints first.
    assert not judged_late("the parent is done\nwritten 1.0\n", "written 1.0\nthe parent is done\n")


def test_what_differs_between_two_plain_runs_is_not_compared() -> None:
    first, second = result(stdout="loss 1.5, 0.123 s\ndone\n"), result(stdout="loss 1.5, 0.456 s\ndone\n")
    second.files = {"model.pt": "b"}
    first.stdout, second.stdout = (f"at 15:00:0{i}: {each.stdout}" for i, each in enumerate((first, second)))
    reference = Reference(first, second, "all")
    assert reference.not_compared() == ["the file model.pt", "parts of 1 printed lines (the first is line 1)"]
    assert reference.difference(result(stdout="at 15:01:07: loss 1.5, 0.789 s\ndone\n")) is None
    assert reference.difference(result(stdout="at 15:00:00: loss 1.6, 0.123 s\ndone\n")) is not None
    assert reference.difference(result(stdout="at 15:00:00: loss 1.5, 0.123 s\n")) is not None
    one, other = result(stdout="12 passed in 0.12s\n"), result(stdout="12 passed in 0.13s\n")
    assert Reference(one, one, "all").difference(other) is None  # equal durations are chance
    unequal = Reference(first, result(stdout="one\ntwo words\n"), "all")
    assert "the printed output, which has other lines in each run" in unequal.not_compared()


def test_a_limit_counts_no_time_in_which_a_thread_waits_for_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0, Path(), Limits(10.0))
    begin = time.monotonic()
    monkeypatch.setattr(_processes.time, "monotonic", lambda: begin + 15)
    monkeypatch.setattr(_processes, "_times", lambda *_: [(1.0, 1.0), (1.0, 6.0)])
    assert not clock.is_over()
    monkeypatch.setattr(_processes.time, "monotonic", lambda: begin + 17)
    monkeypatch.setattr(_processes, "_times", lambda *_: [(9.0, 4.0)])
    assert clock.is_over()


def test_a_run_is_over_if_its_threads_do_nothing_and_is_given_up_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    at = {"time": 0.0, "work": 0.0}
    monkeypatch.setattr(_processes.time, "monotonic", lambda: at["time"])
    monkeypatch.setattr(_processes, "_times", lambda *_: [(at["work"] / 2, 0.0), (0.0, at["work"] / 2)])
    clock = Clock(0, Path(), Limits(until=400))
    for at["time"], at["work"], is_over in (
        (100, 2, False),
        (119, 4, False),
        (230, 5, False),
        (238, 8, False),
        (359, 8, True),
    ):
        assert clock.is_over() == is_over
    at["time"] = 401
    with pytest.raises(OutOfTime):
        clock.is_over()


class FakeRunner:
    """A program that takes ``seconds``, and its clock. The runs from number ``last`` on never end."""

    def __init__(self, seconds: float, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = Path()
        self.in_place = False
        self.now = 0.0
        self.ended = 0
        self.all: list[dict[str, str]] = []
        self.output: dict[str, str] = {}  # by the schedule
        self.load = lambda first: False
        self._seconds, self._last = seconds, last
        monkeypatch.setattr(_session.time, "monotonic", lambda: self.now)

    def run(
        self, settings: Any, what: str = "", limits: Limits = NO_LIMITS, fresh: bool = False, loaded: bool = False
    ) -> Result:
        if self.ended == self._last:
            assert limits.until is not None
            self.now = limits.until
            raise OutOfTime
        self.now += self._seconds
        self.ended += 1
        self.all.append(dict(settings))
        first = result(stdout=self.output.get(settings.get("OPENREG_EXECUTION"), "1.5\n"))
        counts = {point: 1000 for point in _plan.FAULTS}
        first.records[0] |= {"counts": counts, "places": {}, "is_started": False, "peak": 0}
        first.seconds = self._seconds
        return first


@pytest.mark.parametrize(
    ("seconds", "budget", "last", "runs", "end"),
    [
        (100, None, 999, 15, 1500),  # 15 times the first run
        (1, None, 999, 56, 56),  # a short program has at least a minute
        (1, 10, 999, 10, 10),
        (100, None, 12, 12, 1560),  # a run that has begun has a minute more
    ],
)
def test_a_budget_ends_the_check_and_the_report_says_how_much_was_looked_at(
    seconds: float, budget: float | None, last: int, runs: int, end: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(seconds, last, monkeypatch)
    options = Options([], "", "", 12, 3, [], "all", None, budget, None, jobs=1)
    session = Session(options, runner, lambda text: None)  # type: ignore[arg-type]
    session.run()
    looked_at = session.looked_at
    assert not session.findings and (looked_at["runs"], looked_at["planned"], runner.now) == (runs, 56, end)
    assert runs == 2 + 2 + looked_at["schedules"] + sum(looked_at["faults"].values())


def test_a_finding_is_tried_again_before_all_other_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FakeRunner(1, 999, monkeypatch)
    runner.output["late"] = "2.5\n"
    options = Options([], "", "", 12, 3, [], "all", None, None, None, jobs=1)
    session = Session(options, runner, lambda text: None)  # type: ignore[arg-type]
    session.run()
    assert [finding.sure for finding in session.findings.values()] == ["always (2 of 2 runs)"]
    late = {"OPENREG_EXECUTION": "late"}
    poison = {"OPENREG_POISON": "1"}
    assert runner.all[:7] == [{}, {}, {}, poison, late, late, {"OPENREG_EXECUTION": "random:1"}]


class SlowRunner(FakeRunner):
    """Two runs at a time. The schedule ``slow`` ends only after the next run has ended."""

    def __init__(self, slow: str, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(0.001, 999, monkeypatch)
        self.most, self.tried_again = 0, 0
        self._slow, self._seen = slow, set[str]()
        self._under_way: list[str] = []
        self._changed = threading.Condition()
        self._later = False

    def run(
        self, settings: Any, what: str = "", limits: Limits = NO_LIMITS, fresh: bool = False, loaded: bool = False
    ) -> Result:
        name = str(settings)
        with self._changed:
            self._under_way.append(name)
            self.most = max(self.most, len(self._under_way))
            if name in self._seen and "EXECUTION" in name:
                self.tried_again += 1
                assert self._under_way == [name]  # alone
            elif self._slow in name:
                self._changed.wait_for(lambda: self._later)
            else:
                self._later |= any(self._slow in each for each in self._under_way)
            self._seen.add(name)
            found = super().run(settings, what, limits)
            self._under_way.remove(name)
            self._changed.notify_all()
        return found


@pytest.mark.parametrize("slow", ["late", "random:1", "random:2"])
def test_the_order_of_the_findings_is_that_of_the_plan_whichever_run_ends_first(
    slow: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = SlowRunner(slow, monkeypatch)
    names = ["late", "random:1", "random:2", "random:3"]
    names = names[names.index(slow) :]
    runner.output = {name: f"{number}.5\n" for number, name in enumerate(names, 2)}
    options = Options([], "", "", 12, 3, [], "all", None, 1e9, None, jobs=2)
    session = Session(options, runner, lambda text: None)  # type: ignore[arg-type]
    session.run()
    (first,) = session.findings.values()  # these runs show the same, and the report names the first of them
    assert first.repeat.split() == [f"OPENREG_EXECUTION={slow}"] and first.sure == "always (2 of 2 runs)"
    assert [run.settings["OPENREG_EXECUTION"] for run in first.runs] == names
    assert (runner.most, runner.tried_again) == (2, 1)
    assert session.looked_at["runs"] == session.looked_at["planned"]


def test_a_check_runs_as_many_at_a_time_as_there_are_processors_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def jobs(asked: int | None, memory: int, in_place: bool = False) -> int:
        options = Options([], "", "", 12, 3, [], "all", None, None, None, jobs=asked)
        return _session.jobs_for(options, in_place, memory)

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(8)})
    monkeypatch.setattr(_session, "available_memory", lambda: 8 << 30)
    assert [jobs(None, memory) for memory in (0, 1 << 20, 1 << 30, 3 << 30, 9 << 30)] == [8, 8, 8, 2, 1]
    assert [jobs(asked, 3 << 30) for asked in (0, 1, 5)] == [1, 1, 5]  # who asks knows better
    assert jobs(None, 0, in_place=True) == jobs(4, 0, in_place=True) == 1


def test_the_memory_of_a_machine_or_of_a_container_is_known() -> None:
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < _session.available_memory() <= pages


class LoadingRunner(FakeRunner):
    """Has the imports of the program in a server. ``outputs``: of the program after these imports, without a fault and
    with each fault; and of the program with a fault, started as the first run."""

    def __init__(self, outputs: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(0.001, 999, monkeypatch)
        self.load = lambda first: True
        self.faults = {True: 0, False: 0}  # how many runs with a fault began after the imports
        self._outputs = outputs

    def run(
        self, settings: Any, what: str = "", limits: Limits = NO_LIMITS, fresh: bool = False, loaded: bool = False
    ) -> Result:
        found = super().run(settings, what, limits)
        if "OPENREG_FAULTS" in settings:
            self.faults[loaded] += 1
            found.stdout = self._outputs[1 if loaded else 2]
        elif loaded:
            found.stdout = self._outputs[0]
        return found


SAME, OTHER = "1.5\n", "2.5\n"


@pytest.mark.parametrize(
    ("outputs", "after_imports", "otherwise", "findings"),
    [
        ((SAME, SAME, SAME), 36, 0, 0),
        ((OTHER, SAME, SAME), 0, 36, 0),  # the program is not the same after these imports
        ((SAME, OTHER, SAME), 36, 36, 0),  # what nobody sees without them is no finding
        ((SAME, SAME, OTHER), 36, 0, 0),
        ((OTHER, SAME, OTHER), 0, 36 + 4, 4),  # one of each kind, which is tried again
        ((SAME, OTHER, OTHER), 36, 4 + 4, 4),
    ],
)
def test_runs_with_a_fault_begin_after_the_imports_if_the_program_is_the_same_there(
    outputs: tuple[str, str, str], after_imports: int, otherwise: int, findings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = LoadingRunner(outputs, monkeypatch)
    options = Options([], "", "", 9, 0, [], "all", None, 1e9, None, jobs=1)
    session = Session(options, runner, lambda text: None)  # type: ignore[arg-type]
    session.run()
    assert (runner.faults[True], runner.faults[False], len(session.findings)) == (after_imports, otherwise, findings)


LOADED = f"""
import sys
BEFORE = {{*sys.modules}}
import torch
import xml.dom.minidom  # a library that nothing else imports

print("imported before" if "xml.dom.minidom" in BEFORE else "new")
x = torch.ones(4, device={DEVICE!r})
print((x + 1).sum().item())
"""


@pytest.mark.slow
def test_a_fault_happens_in_a_program_whose_imports_are_there_already(tmp_path: Path) -> None:
    folder, scratch = tmp_path / "project", tmp_path / "scratch"
    for each in (folder, scratch):
        each.mkdir()
    (folder / "program.py").write_text(LOADED)
    runner = _processes.Runner(["program.py"], folder, False, scratch)
    try:
        first = runner.run({}, "modules", fresh=True)
        assert (first.status, first.stdout) == (0, "new\n8.0\n"), first.stderr
        assert runner.load(first)
        plain = runner.run({}, "", loaded=True)
        assert (plain.status, plain.stdout) == (0, "imported before\n8.0\n"), plain.stderr
        assert plain.record["counts"] == first.record["counts"]
        failed = runner.run({"OPENREG_FAULTS": "malloc:1=oom"}, "", loaded=True)
        assert failed.status == 1 and failed.fired() and "torch.OutOfMemoryError" in failed.stderr
        assert failed.stderr == runner.run({"OPENREG_FAULTS": "malloc:1=oom"}).stderr
        later = runner.run({}, "", loaded=True)  # and no fault in the runs after it
        assert later.stdout == plain.stdout
    finally:
        runner.stop()


@pytest.mark.slow
def test_imports_that_fail_in_the_server_end_in_an_error_that_the_check_knows(tmp_path: Path) -> None:
    runner = _processes.Runner(["-c", "print(1)"], tmp_path, True, tmp_path)
    first = result()
    first.pid, first.records = 7, [{"pid": 7, "counts": {}, "modules": ["no_such_module"]}]
    try:
        assert runner.load(first)
        with pytest.raises((EOFError, OSError)):
            runner.run({}, "", loaded=True)
    finally:
        runner.stop()


def test_a_server_starts_the_ranks_of_a_program(tmp_path: Path) -> None:
    server = Server(path=tmp_path / "ranks", imports=["json"])

    def run(*words: str, files: tuple[int, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
        command, environment = [server.launcher, *words], {**os.environ, **variables}
        # programs.run passes no files on.
        return subprocess.run(command, env=environment, pass_fds=files, capture_output=True, text=True)  # noqa: TID251

    try:
        ended = run("-u", "-c", "import os, sys; print(os.environ['A'], sys.argv[1:]); sys.exit(3)", "b", A="a")
        assert (ended.returncode, ended.stdout, ended.stderr) == (3, "a ['b']\n", "")
        assert run("-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)").returncode == -signal.SIGKILL
        read, write = os.pipe()
        assert run("-c", f"import os; os.write({write}, b'told')", files=(write,)).returncode == 0
        os.close(write)
        with open(read) as pipe:
            assert pipe.read() == "told"  # and no other process has the other end
        name = "print(open('/proc/self/cmdline').read().count('_zygote.py'))"
        assert run("-c", name).stdout == "1\n"
        # What Python reads only when it starts needs a new interpreter, which the server starts too.
        new = "import sys; print(sys.flags.optimize, sys.flags.hash_randomization)"
        assert run("-O", "-c", new).stdout == "1 1\n"
        assert run("-c", new, PYTHONHASHSEED="0").stdout == "0 0\n"
    finally:
        server.end()


STACKS = """Thread 0x01 (most recent call first):
  File "/project/train.py", line 3 in produce

Current thread 0x02 (most recent call first):
  File "/lib/python/queue.py", line 171 in get
  File "/project/train.py", line 20 in next
  File "/project/train.py", line 30 in <module>
"""


def test_a_hang_is_reported_where_the_program_waits_and_after_a_fault_at_its_place() -> None:
    hang = result(None)
    hang.stacks = STACKS
    (found,) = judged(hang, "schedule")
    assert (found.kind, found.line) == ("hang", 20)
    (found,) = judged(hang)
    assert found.line == 9 and found.message.endswith("after malloc:3=oom: it waits in line 20 of train.py")


# ---- reports ---------------------------------------------------------------------------------------------------------

FINDINGS = [
    Finding("race", "train.py", 12, "a <race> & more", "OPENREG_SANITIZER=race python train.py"),
    Finding("wrong", "train.py", 0, "other numbers", "OPENREG_FAULTS=malloc:3=oom python train.py", note=True),
]
LOOKED_AT = {
    "runs": 5,
    "planned": 9,
    "schedules": 4,
    "models": ["cuda-t4"],
    "calls": {"allocations": 7},
    "faults": {"allocations": 2},
    "not_compared": ["the file log"],
}


def test_the_reports_are_what_their_readers_expect() -> None:
    report = json.loads(_reports.as_json(FINDINGS, LOOKED_AT))
    assert {*report["findings"][0]} >= {"kind", "file", "line", "message", "repeat"}
    assert len(report["findings"]) == len(report["notes"]) == 1 and report["looked_at"] == LOOKED_AT

    suite = ElementTree.fromstring(_reports.as_junit(FINDINGS, LOOKED_AT))
    assert (suite.tag, suite.get("tests"), suite.get("failures")) == ("testsuite", "1", "1")
    assert suite[0].get("line") == "12" and suite[0][0].get("message") == "a <race> & more"
    assert ElementTree.fromstring(_reports.as_junit([], LOOKED_AT)).get("failures") == "0"

    sarif = json.loads(_reports.as_sarif(FINDINGS, LOOKED_AT))
    assert sarif["version"] == "2.1.0" and "sarif-2.1.0" in sarif["$schema"]
    driver, results = sarif["runs"][0]["tool"]["driver"], sarif["runs"][0]["results"]
    assert driver["name"] and {rule["id"] for rule in driver["rules"]} == {*_judge.KINDS}
    assert [(each["ruleId"], each["level"]) for each in results] == [("race", "error"), ("wrong", "note")]
    place = results[0]["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "train.py"}, "region": {"startLine": 12}}
    assert "region" not in results[1]["locations"][0]["physicalLocation"] and results[0]["message"]["text"]

    page = _reports.as_html(FINDINGS, LOOKED_AT)
    assert "a &lt;race&gt; &amp; more" in page and "train.py:12" in page and "https:" not in page
    assert "check: 1 finding; looked at 5 of 9 runs; 4 schedules; faults in 2 of 7 allocations; models cuda-t4" in (
        _reports.text(FINDINGS, LOOKED_AT)
    )


@pytest.mark.parametrize(("keeps", "allocated"), [("pass", 0), ("kept.append(error)", 4 << 20)])
def test_what_globals_hold_at_the_end_is_no_leak_but_what_an_exception_holds_is(
    keeps: str, allocated: int, tmp_path: Path
) -> None:
    code = f"""
        import torch

        parts, kept = [torch.ones(8, device={DEVICE!r}, requires_grad=True).exp()], []
        def fails():
            activation = torch.ones(1 << 20, device={DEVICE!r})
            raise ValueError
        try:
            fails()
        except ValueError as error:
            {keeps}
    """
    programs.python(code, status=0, errors="", OPENREG_CHECK=f"{tmp_path}:", cwd=tmp_path)
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["allocated"] == allocated


def test_a_daemon_thread_keeps_the_globals_of_the_program_to_its_end(tmp_path: Path) -> None:
    code = f"""
        import threading, torch

        x, begun = torch.ones(8, device={DEVICE!r}), threading.Event()
        def spin():
            while True:
                begun.set()
                x.numel()
        threading.Thread(target=spin, daemon=True).start()
        begun.wait()
    """
    for _ in range(5):
        programs.python(code, status=0, errors="", OPENREG_CHECK=f"{tmp_path}:", cwd=tmp_path)
    assert {json.loads(record.read_text())["allocated"] for record in tmp_path.glob("*.json")} == {0}


def test_a_record_counts_the_waits_of_the_host_and_not_those_of_a_stream(tmp_path: Path) -> None:
    code = f"""
        import torch

        x = torch.ones(8, device={DEVICE!r})
        torch.Stream(device={DEVICE!r}).wait_stream(torch.accelerator.current_stream())
        x.sum().item()
        x.cpu()
        torch.accelerator.current_stream().record_event().synchronize()
        torch.accelerator.synchronize()
        x.to("cpu", non_blocking=True)
    """
    programs.python(code, status=0, errors="", OPENREG_CHECK=f"{tmp_path}:", cwd=tmp_path)
    (record,) = tmp_path.glob("*.json")
    assert json.loads(record.read_text())["waits"] == 4


# ---- the command -----------------------------------------------------------------------------------------------------


def check(*arguments: str | Path, cwd: Path) -> tuple[programs.Done, dict[str, Any]]:
    """The report of the command; {} if it wrote none."""
    report = cwd.parent / f"{cwd.name}.json"
    command = (sys.executable, "-m", "torch_openreg", "check", "--json", report, *arguments)
    ended = programs.run(*command, cwd=cwd, clean=True, timeout=3600)
    return ended, json.loads(report.read_text()) if report.exists() else {}


Check = Callable[..., tuple[int, str, dict[str, Any]]]


@pytest.fixture
def check_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    """Runs the command in this process and in ``tmp_path``, with the server of the other tests, which starts the first
    run too: status, output, report."""
    server = programs.server(sys.executable, programs.read_early(os.environ), ())
    monkeypatch.setattr(_processes, "Server", lambda: SimpleNamespace(start=server.start, end=lambda: None))
    monkeypatch.setattr(_processes.Runner, "_start_fresh", _processes.Runner._start)
    monkeypatch.chdir(tmp_path)
    for variable in [name for name in os.environ if "OPENREG" in name]:
        monkeypatch.delenv(variable)

    def run(*arguments: str | Path) -> tuple[int, str, dict[str, Any]]:
        report = tmp_path.parent / f"{tmp_path.name}.json"
        status = command.main(["--json", str(report), *map(str, arguments)])
        return status, capsys.readouterr().out, json.loads(report.read_text())

    return run


def places(report: dict[str, Any]) -> set[tuple[str, str, int]]:
    return {(each["kind"], Path(each["file"]).name, each["line"]) for each in report["findings"]}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no.py"], "there is no file no.py"),
        (["--fail-on", "rase", PROGRAMS / "correct.py"], "there is no kind rase; there are error, race"),
        (["--budget", "soon", PROGRAMS / "correct.py"], "must be a time such as 90s, 5m or 1h, not 'soon'"),
        (["--compare", "some", PROGRAMS / "correct.py"], "it is none of all, output, files, none, and no FILE.py"),
        (["--suppress", "list", PROGRAMS / "correct.py"], "list:2: a line is `KIND FILE[:LINE]  # the reason`"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value[0]),
)
def test_wrong_usage_has_the_status_2(arguments: list[str | Path], says: str, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("race train.py:12  # the race is on purpose\nrace train.py\n")
    ended, _ = check(*arguments, cwd=tmp_path)
    assert ended.returncode == 2 and says in ended.stderr


def bug_line(file: Path) -> int:
    return next(number for number, line in enumerate(file.read_text().splitlines(), 1) if "# BUG" in line)


QUICK = ("--places", "2", "--seeds", "0", "--budget", "1h", "--models", "")
NO_FAULTS = ("--places", "0", *QUICK[2:])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds", "options"),
    [
        ("handler", {"recovery"}, QUICK),
        ("unordered", {"race", "schedule"}, NO_FAULTS),
        ("grows", {"leak"}, NO_FAULTS),
    ],
)
def test_a_bug_is_found_with_its_line(
    name: str, kinds: set[str], options: tuple[str, ...], check_here: Check, tmp_path: Path
) -> None:
    file = PROGRAMS / f"{name}.py"
    status, output, report = check_here(*options, file)
    assert status == 1
    assert {(kind, file.name, bug_line(file)) for kind in kinds} <= places(report), output
    assert [*tmp_path.iterdir()] == []  # the runs worked in copies of the folder


@pytest.mark.slow
def test_a_command_of_the_report_repeats_its_finding(check_here: Check, tmp_path: Path) -> None:
    file = PROGRAMS / "swallowed.py"
    status, output, report = check_here(*QUICK, file)
    assert status == 1 and places(report) == {("swallowed", file.name, bug_line(file))}, output
    finding = report["findings"][0]
    assert finding["sure"] == "always (2 of 2 runs)"
    setting, _, program = finding["repeat"].split()
    variable, _, value = setting.partition("=")
    repeated = programs.run(sys.executable, program, cwd=tmp_path, clean=True, **{variable: value})
    assert repeated.returncode == 0 and repeated.stdout.strip() in finding["message"]


def test_what_is_known_or_suppressed_for_a_reason_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "known").write_text(_reports.as_json(FINDINGS[:1], LOOKED_AT))
    (tmp_path / "reasons").write_text("race train.py:12  # on purpose\n\n# a comment\n* b.py  # generated\n")
    known, rules = command._baseline(str(tmp_path / "known")), command._suppressions(str(tmp_path / "reasons"))
    for text in ("[]", "{", '{"findings": [{}]}'):
        (tmp_path / "known").write_text(text)
        with pytest.raises(ValueError, match="--baseline: .*known is not a file that --json wrote$"):
            command._baseline(str(tmp_path / "known"))
    race = FINDINGS[0]
    moved = Finding(race.kind, race.file, race.line + 1, race.message)
    assert not command._is_wanted(moved, [], known) and not command._is_wanted(race, rules, set())
    assert command._is_wanted(moved, rules, set()) and not command._is_wanted(
        Finding("leak", "b.py", 3, ""), rules, set()
    )


@pytest.mark.slow
def test_nothing_is_found_in_a_correct_program_and_the_report_says_how_much_was_looked_at(tmp_path: Path) -> None:
    few = ("--places", "1", "--seeds", "1", "--models", "cuda-t4", "--budget", "1h")
    ended, report = check(*few, PROGRAMS / "correct.py", cwd=tmp_path)
    assert (ended.returncode, report["findings"], report["notes"]) == (0, [], []), ended.stdout
    looked_at = report["looked_at"]
    assert looked_at["runs"] == looked_at["planned"] and looked_at["schedules"] == 2
    assert looked_at["waits"] > 0 and looked_at["peak"] > 0
    assert looked_at["faults"]["allocations"] == looked_at["faults"]["launches"] == 1
    assert looked_at["not_compared"] == ["parts of 4 printed lines (the first is line 1)"]


@pytest.mark.slow
def test_nothing_is_found_in_a_program_whose_forked_workers_run_its_lines(check_here: Check) -> None:
    status, output, report = check_here(*NO_FAULTS, PROGRAMS / "workers.py")
    assert (status, report["findings"]) == (0, []), output


@pytest.mark.slow
def test_a_module_with_two_ranks_is_checked(check_here: Check, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text((PROGRAMS / "two_ranks.py").read_text())
    status, output, report = check_here("--places", "1", *QUICK[2:], "-m", "ranks")
    assert (status, report["findings"]) == (0, []), output
    assert report["looked_at"]["faults"]["collectives"] == 1


SLEEPS = """
import os, sys, time

if os.environ["OPENREG_CHECK"].endswith(":sanitize") or "OPENREG_POISON" in os.environ:
    with open(os.path.join(sys.argv[1], str(os.getpid())), "w") as file:
        file.write("begun")
    while True:
        time.sleep(1)
"""


# A shell starts programs in the background with SIGINT ignored, and what they start ignores it too.
INTERRUPTIBLE = """
import runpy, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
runpy.run_module("torch_openreg", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_ctrl_c_ends_all_runs_that_are_under_way(tmp_path: Path) -> None:
    folder, begun = tmp_path / "project", tmp_path / "begun"
    for each in (folder, begun):
        each.mkdir()
    (folder / "program.py").write_text(SLEEPS)
    command = (sys.executable, "-c", INTERRUPTIBLE, "check", "--jobs", "2", "program.py", begun)
    with open(tmp_path / "said", "w+") as said:
        program = programs.start(*command, cwd=folder, clean=True, stdout=said.fileno(), stderr=said.fileno())
        while len([*begun.iterdir()]) < 2:
            time.sleep(0.1)
        os.kill(program.pid, signal.SIGINT)
        program.wait()
        said.seek(0)
        text = said.read()
    assert program.returncode == 130 and "check: stopped; this was found so far\ncheck: nothing found" in text, text
    assert not [path for path in begun.iterdir() if _is_alive(path.name)]


def _is_alive(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


SUITE = f"""
import torch

def test_a_copy_that_is_too_early():
    host = torch.ones(1 << 12, device={DEVICE!r}).cumsum(0).to("cpu", non_blocking=True)
    assert host[0] == host[0]  # BUG

def test_a_sum():
    assert torch.ones(4, device={DEVICE!r}).sum() == 4
"""


@pytest.mark.slow
def test_a_suite_of_pytest_is_checked(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(SUITE)
    found = tmp_path.parent / f"{tmp_path.name}.sarif"
    ended = programs.run(
        *programs.PYTEST,
        "--openreg-check",
        f"--openreg-check-options={' '.join(NO_FAULTS[:-2])} --models= --sarif {found}",
        cwd=tmp_path,
        clean=True,
    )
    assert ended.returncode == 1, ended.stdout + ended.stderr
    results = json.loads(found.read_text())["runs"][0]["results"]
    assert ("race", 6) in {
        (each["ruleId"], each["locations"][0]["physicalLocation"]["region"]["startLine"]) for each in results
    }
