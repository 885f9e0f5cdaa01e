"""PyTorch's test databases on the device and on the CPU: operators and modules, forward and backward, optimizers, and
what the databases leave out.

The cases run in worker processes (see `sweep`). Their dtype is float32, or another for operators without float32.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from comparison import DEVICE
from sweep import checks, report, runner
from sweep.__main__ import sweep

OPTIMIZER_VARIANTS = (
    "default", "forloop", "foreach", "fused", "capturable", "capturable_foreach", "differentiable", "sparse",
)  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[list[runner.Record]]:
    """The results of the sweep; the progress and the table are shown even where pytest captures output."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    assert capture is not None
    with capture.global_and_fixture_disabled():
        print(f"\nSweeping PyTorch's test databases on {DEVICE}:")
        result = sweep(
            device=DEVICE,
            suites=["op", "module", "optimizer", "layout"],
            ops=["*"],
            dtypes=["default"],
            variants=["forward", "backward", *OPTIMIZER_VARIANTS],
            results=tmp_path_factory.mktemp("sweep") / "results.jsonl",
            jobs=os.cpu_count() or 1,
        )
        report.show(result, report.load_exceptions(DEVICE))
    yield result


def _lines(records: list[runner.Record]) -> str:
    return "\n".join(map(report.line, records))


@pytest.mark.slow
def test_no_case_crashes_or_hangs(records: list[runner.Record]) -> None:
    dead = [record for record in records if record["status"] in ("crash", "hang")]
    assert not dead, _lines(dead)


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["op", "optimizer"])
def test_at_least_99_percent_of_a_suite_agree_with_the_cpu(records: list[runner.Record], suite: str) -> None:
    assert report.agreement([r for r in records if r["suite"] == suite]) >= 0.99


@pytest.mark.slow
def test_every_case_that_disagrees_is_listed_with_a_reason(records: list[runner.Record]) -> None:
    bad = report.unlisted(records, report.load_exceptions(DEVICE))
    assert not bad, _lines(bad)


@pytest.mark.slow
def test_every_listed_exception_is_still_needed(records: list[runner.Record]) -> None:
    assert report.stale(records, report.load_exceptions(DEVICE)) == []


# ---- The harness itself ------------------------------------------------------------------------------------------

# A program that speaks the protocol of the sweep's workers. The name of a case says what happens to the process.
TOY_WORKER = """
import ctypes, json, os, sys, time
settings = json.loads(input())
print(json.dumps({"torch": "none"}), flush=True)
ran = 0
for line in sys.stdin:
    name = json.loads(line)["case"]["name"]
    if name == "segfault":
        ctypes.string_at(0)
    if name == "dies_after_others" and ran:
        print("openreg: the host accessed device memory.\\nand more", file=sys.stderr, flush=True)
        os.abort()
    if name == "exits":
        sys.exit("no such thing")
    if name == "hangs":
        time.sleep(1000)
    ran += 1
    print(json.dumps({"status": "bitwise", "detail": "", "samples": {"bitwise": 1}}), flush=True)
"""


def _toy_cases(*names: str) -> list[runner.Record]:
    return [{"suite": "op", "name": name, "dtype": "float32", "variant": "forward"} for name in names]


def _run_toy(*names: str, **options: object) -> dict[str, runner.Record]:
    results: dict[str, runner.Record] = {}
    command = (sys.executable, "-c", TOY_WORKER)
    runner.run_cases(
        _toy_cases(*names),
        {},
        lambda r: results.update({r["name"]: r}),
        command=command,
        **options,  # type: ignore[arg-type]
    )
    return results


def test_the_runner_attributes_a_crash_to_its_case_and_goes_on() -> None:
    results = _run_toy("a", "segfault", "b", "exits", "c", jobs=1)
    assert {name: record["status"] for name, record in results.items()} == {
        "a": "bitwise", "segfault": "crash", "b": "bitwise", "exits": "crash", "c": "bitwise",
    }  # fmt: skip
    assert results["segfault"]["detail"] == "SIGSEGV"
    assert results["exits"]["detail"] == "exit status 1: no such thing"


def test_the_runner_says_when_a_case_crashes_only_after_others() -> None:
    results = _run_toy("a", "dies_after_others", jobs=1)
    assert results["dies_after_others"]["status"] == "crash"
    assert results["dies_after_others"]["detail"] == (
        "SIGABRT: openreg: the host accessed device memory. (not when run alone; 1 cases ran before it)"
    )


def test_the_runner_stops_a_case_that_hangs() -> None:
    results = _run_toy("a", "hangs", "b", jobs=2, timeout=15)
    assert results["hangs"]["status"] == "hang"
    assert results["hangs"]["detail"] == "hang: no answer in 15 s"
    assert results["a"]["status"] == results["b"]["status"] == "bitwise"


def test_the_runner_fails_when_a_worker_cannot_start() -> None:
    with pytest.raises(runner.WorkerError, match="^exit status 1: no device$"):
        runner.run_cases(
            _toy_cases("a"), {}, print, command=(sys.executable, "-c", "import sys; sys.exit('no device')")
        )


def test_an_interrupted_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    path, header = tmp_path / "results.jsonl", {"torch": "2", "device": "cpu"}
    case = {**_toy_cases("a")[0], "status": "bitwise", "detail": ""}
    runner.Results(path, header, fresh=False).add(case)
    with path.open("a") as file:
        file.write('{"suite": "op", "name": "b')
    assert list(runner.Results(path, header, fresh=False).records) == ["op/a/float32/forward"]
    assert runner.Results(path, {**header, "torch": "3"}, fresh=False).records == {}
    assert runner.Results(path, header, fresh=True).records == {}


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exceptions.toml"
    path.write_text('[[exception]]\ncases = ["op/a/*/*"]\nallow = "different"\nreason = " "\n')
    with pytest.raises(ValueError, match="an exception has cases, allow and reason, perhaps varies, and nothing else"):
        report.read_exceptions(path)


@pytest.mark.parametrize(
    ("error", "status"), [(0.0, "bitwise"), (1e-3, "tolerance"), (4e-3, "precision"), (0.1, "different")]
)
def test_a_result_may_be_as_precise_as_the_cpus_where_that_is_listed(error: float, status: str) -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    expected = exact.half()
    actual = (expected + error * (-1) ** torch.arange(100)).half()
    assert checks.compare(actual, expected, "cpu", exact=exact)[0] == status


def test_parts_can_be_left_out_of_the_comparison() -> None:
    a, b = torch.ones(2, 3), torch.zeros(3, 2).T
    assert checks.compare(a, b, "cpu", ["values", "strides"])[0] == "bitwise"
    assert checks.compare(a, b, "cpu", ["values"])[0] == "different"
    assert checks.compare(a, b, "cpu", ["strides"])[0] == "different"
    assert checks.compare([a, a], [a, a.clone()], "cpu", ["sharing"])[0] == "bitwise"
    assert checks.compare([a, a], [a, a.clone()], "cpu")[0] == "different"
    empty = torch.empty(0)
    assert checks.compare([a, a], [a, empty], "cpu", ["empty"])[0] == "bitwise"
    assert checks.compare([a, a], [b, empty], "cpu", ["empty"])[0] == "different"
    assert checks.compare([a, empty], [a, a], "cpu", ["empty"])[0] == "different"


def test_a_result_that_is_better_than_its_exception_is_reported_as_stale() -> None:
    records = [{**case, "status": "bitwise", "detail": ""} for case in _toy_cases("a", "b")]
    exception = report.Exception_(("op/a/*/*", "op/z/*/*"), "different", "why")
    assert report.stale(records, [exception]) == ["op/a/*/* (different): why"]
    records[0]["status"] = "different"
    assert report.stale(records, [exception]) == []
    assert report.unlisted(records, [exception]) == []
    records[1]["status"] = "different"
    assert report.unlisted(records, [exception]) == [records[1]]
