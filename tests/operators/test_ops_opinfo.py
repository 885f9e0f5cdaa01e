"""PyTorch's test databases on the device and on the CPU: operators and modules, forward and backward, optimizers, and
what the databases leave out.

The cases run in worker processes (see `sweep`). Their dtype is float32, or another for operators without float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from comparison import DEVICE
from sweep import checks, report
from sweep.__main__ import main, sweep
from torch_conformance.runner import Record

OPTIMIZER_VARIANTS = (
    "default", "forloop", "foreach", "fused", "capturable", "capturable_foreach", "differentiable", "sparse",
)  # fmt: skip


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[list[Record]]:
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
            samples=4,  # of each case; `make sweep` runs all of them
            jobs=1,  # each worker imports the databases, which takes as long as hundreds of cases
            batch=10_000,
        )
        report.show(result, report.load_exceptions(DEVICE))
    yield result


def _lines(records: list[Record]) -> str:
    return "\n".join(map(report.line, records))


@pytest.mark.slow
def test_no_case_crashes_or_hangs(records: list[Record]) -> None:
    dead = [record for record in records if record["result"] in ("crashed", "hung")]
    assert not dead, _lines(dead)


@pytest.mark.slow
@pytest.mark.parametrize("suite", ["op", "optimizer"])
def test_at_least_99_percent_of_a_suite_agree_with_the_cpu(records: list[Record], suite: str) -> None:
    assert report.agreement([r for r in records if r["suite"] == suite]) >= 0.99


@pytest.mark.slow
def test_every_case_that_disagrees_is_listed_with_a_reason(records: list[Record]) -> None:
    bad = report.unlisted(records, report.load_exceptions(DEVICE))
    assert not bad, _lines(bad)


@pytest.mark.slow
def test_every_listed_exception_is_still_needed(records: list[Record]) -> None:
    assert report.stale(records, report.load_exceptions(DEVICE)) == []


# ---- The harness itself ------------------------------------------------------------------------------------------


def test_a_sweep_does_not_go_on_from_the_results_of_another_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answers(*_: object) -> tuple[None, list[Record]]:
        return None, [checks.case("op", "add", "float32", "forward")]

    def passes(todo: list[Record], _: object, on_result: Callable[[Record], None], **__: object) -> None:
        for case in todo:
            on_result({**case, "result": "bitwise", "detail": "", "samples": {"bitwise": 1}})

    monkeypatch.setattr("sweep.__main__.start_and_ask", answers)
    monkeypatch.setattr("sweep.__main__.run", passes)
    path = tmp_path / "results.jsonl"
    options = ["--results", str(path), "--device"]
    assert main([*options, "cpu"]) == 0
    before = path.read_text()
    assert main([*options, "cpu"]) == 0 and path.read_text() == before
    assert main([*options, DEVICE]) == 2 and path.read_text() == before
    assert f"sweep: {path} has the results of another run" in capsys.readouterr().err
    assert main([*options, DEVICE, "--fresh"]) == 0


def test_an_exception_without_a_reason_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exceptions.toml"
    path.write_text('[[exception]]\ncases = ["op/a/*/*"]\nallow = "different"\nreason = " "\n')
    with pytest.raises(ValueError, match="an exception has cases, allow and reason, perhaps varies, and nothing else"):
        report.read_exceptions(path)


@pytest.mark.parametrize(
    ("error", "result"), [(0.0, "bitwise"), (1e-3, "tolerance"), (4e-3, "precision"), (0.1, "different")]
)
def test_a_result_may_be_as_precise_as_the_cpus_where_that_is_listed(error: float, result: str) -> None:
    exact = torch.linspace(1, 2, 100, dtype=torch.float64)
    expected = exact.half()
    actual = (expected + error * (-1) ** torch.arange(100)).half()
    assert checks.compare(actual, expected, "cpu", exact=exact)[0] == result


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
    records = [
        {**case, "result": "bitwise", "detail": ""}
        for case in [checks.case("op", name, "float32", "forward") for name in ("a", "b")]
    ]
    exception = report.Exception_(("op/a/*/*", "op/z/*/*"), "different", "why")
    assert report.stale(records, [exception]) == ["op/a/*/* (different): why"]
    records[0]["result"] = "different"
    assert report.stale(records, [exception]) == []
    assert report.unlisted(records, [exception]) == []
    records[1]["result"] = "different"
    assert report.unlisted(records, [exception]) == [records[1]]
