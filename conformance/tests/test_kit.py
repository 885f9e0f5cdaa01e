"""The kit's own tests: the runner with a small worker, the reports, and whole runs on the CPU device."""

from __future__ import annotations

import ast
import builtins
import itertools
import json
import os
import re
import runpy
import signal
import subprocess
import symtable
import sys
import time
import warnings
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch.testing._internal.opinfo.core import ErrorInput, SampleInput
from torch.utils._python_dispatch import TorchDispatchMode
from torch_conformance import alerts, kit, mixes, page, report, sweep, worker
from torch_conformance.__main__ import levels_of, main, parser, select
from torch_conformance.databases import suite
from torch_conformance.kit import busy, lost
from torch_conformance.registry import LEVELS, NotOffered, all_checks
from torch_conformance.runner import Results, run
from torch_conformance.worker import _may_lose_the_device, run_and_look, run_check

# A worker with the runner's protocol. The name of a check says what the worker does for it.
WORKER = """
import json, os, sys, time
print(json.dumps({}), flush=True) if sys.stdin.readline() else None
for line in sys.stdin:
    name = json.loads(line)["name"]
    if "crash" in name or "after others" in name and "answer" in globals():
        print("last words", file=sys.stderr, flush=True)
        os.abort()
    if "hang" in name: time.sleep(600)
    if "linger" in name: os.close(1); time.sleep(600)
    if "orphan" in name and os.fork() == 0: time.sleep(600)
    if "orphan" in name: os._exit(7)
    answer = {"result": "failed" if "fail" in name or "lost" in globals() else "passed", "detail": "", "seconds": 0}
    if "lose" in name: lost = answer["lost"] = "no longer copies"
    print(json.dumps(answer), flush=True)
"""


def run_fake(names: list[str], stop: bool = False, jobs: int = 2, timeout: float = 600) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}

    def add(record: dict[str, object]) -> bool:
        found[str(record["name"])] = record
        return stop and record["result"] != "passed"

    run([{"name": name} for name in names], {}, add, jobs=jobs, timeout=timeout, command=(sys.executable, "-c", WORKER))
    return found


def record(name: str, result: str) -> dict[str, object]:
    return {"name": name, "result": result, "detail": "what <happened> & why\x1b[1m\udc80\ufffe", "seconds": 0.5}


def test_a_crash_and_a_hang_cost_one_check_each() -> None:
    seconds = 1
    hung: set[str] = set()
    while len(hung) != 1:  # on a busy machine, other checks may take so long too
        seconds *= 4
        found = run_fake(["a", "crash", "b", "hang", "linger", "orphan", "fail", "c"], timeout=seconds)
        results = {name: each["result"] for name, each in found.items()}
        hung = {name for name, result in results.items() if result == "hung"}
    assert results == {
        "a": "passed",
        "crash": "crashed",
        "b": "passed",
        "hang": "hung",
        "linger": "crashed",
        "orphan": "crashed",
        "fail": "failed",
        "c": "passed",
    }
    assert found["crash"]["detail"] == "SIGABRT\nlast words"
    assert found["linger"]["detail"] == "closed its output, and had not ended 5 s later"
    assert found["orphan"]["detail"] == "exit status 7"


def test_a_check_has_the_time_of_eight_starts_of_a_process() -> None:
    found: list[dict[str, object]] = []
    slow = WORKER.replace('"name"]\n', '"name"]; time.sleep(1)\n').replace("print", "time.sleep(1)\nprint", 1)
    command = (sys.executable, "-c", slow)
    run([{"name": "a"}, {"name": "hang"}], {}, found.append, jobs=1, timeout=0.1, command=command)  # type: ignore[func-returns-value]
    assert [each["result"] for each in found] == ["passed", "hung"]


def test_a_crash_that_needs_earlier_checks_says_so() -> None:
    found = run_fake(["a", "crash", "b", "crash after others", "c", "d", "after others"], jobs=1)
    assert {name: each["result"] for name, each in found.items() if each["result"] != "passed"} == dict.fromkeys(
        ("crash", "crash after others", "after others"), "crashed"
    )
    assert found["crash"]["detail"] == found["crash after others"]["detail"] == "SIGABRT\nlast words"
    assert found["after others"]["detail"] == (
        "SIGABRT\nlast words\n(not when run alone; the process ran 2 others before it)"
    )


def test_a_worker_that_has_lost_its_device_runs_no_further_check() -> None:
    found = run_fake(["lose", "a", "lose too", "fail", "b"], stop=False)
    assert {name: each["result"] for name, each in found.items() if name != "fail"} == dict.fromkeys(
        ("lose", "a", "lose too", "b"), "passed"
    )
    assert not any("lost" in each for each in found.values())


@pytest.mark.parametrize(
    ("name", "may", "result", "expected"),
    [
        ("tensors/errors/a_bad_index_tensor_is_reported", True, "passed", "passed"),
        ("operators/op/gather/float32/error", True, "passed", "passed"),
        ("operators/op/gather/float32/forward", False, "passed", "failed"),
        ("tensors/errors/an_unknown_operator_says_so", False, "not offered", "failed"),
    ],
)
def test_only_an_index_error_may_make_the_device_unusable(
    name: str, may: bool, result: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = iter([None, *[OSError("asserted\nand more")] * 3])

    def copy(device: str) -> None:
        if error := next(copies, None):
            raise error

    monkeypatch.setattr("torch_conformance.kit.there_and_back", copy)
    monkeypatch.setattr("torch_conformance.worker.run_check", lambda *_: {"result": result, "detail": ""})
    assert _may_lose_the_device(name) == may
    detail = "" if may else "The device is unusable after the check: OSError: asserted"
    assert run_and_look(name, "cpu") == {"result": expected, "detail": detail, "lost": "OSError: asserted"}


def test_the_error_of_queued_work_does_not_make_the_device_unusable(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = iter([OSError("late")])

    def copy(device: str) -> None:
        if error := next(copies, None):
            raise error

    monkeypatch.setattr("torch_conformance.kit.there_and_back", copy)
    assert lost("cpu") == ""
    copies = iter([None, OSError("late")])
    monkeypatch.setattr("torch_conformance.worker.run_check", lambda *_: {"result": "passed", "detail": ""})
    assert run_and_look("operators/op/gather/float32/forward", "cpu") == {
        "result": "failed",
        "detail": "Work that the check queued has failed: OSError: late",
    }


class Lazy(torch.Tensor):
    """A tensor of a device that computes when a result is copied, and copies a tensor with values at once."""

    waiting: ClassVar[list[Exception]] = []
    of_an_operator = False

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.Tensor.cpu and args[0].of_an_operator and cls.waiting:
            raise cls.waiting.pop()
        found = super().__torch_function__(func, types, args, kwargs)
        if func is torch.Tensor.add:
            found.of_an_operator = True
        return found


def test_an_error_that_waits_for_the_next_operator_is_not_left_to_another_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("torch.ones", lambda *size: torch.zeros(*size).as_subclass(Lazy))

    def leaves_an_error(*_: object) -> dict[str, object]:
        Lazy.waiting.append(IndexError("index out of range"))
        return {"result": "passed", "detail": ""}

    monkeypatch.setattr("torch_conformance.worker.run_check", leaves_an_error)
    assert run_and_look("tensors/errors/a_bad_index_tensor_is_reported", "cpu") == {"result": "passed", "detail": ""}
    assert not Lazy.waiting
    detail = "Work that the check queued has failed: IndexError: index out of range"
    assert run_and_look("tensors/copies/there_and_back", "cpu") == {"result": "failed", "detail": detail}


def test_a_device_that_does_not_add_is_only_copied_to_and_from(monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: torch.Tensor, other: int) -> torch.Tensor:
        raise RuntimeError("no kernel")

    monkeypatch.setattr(torch.Tensor, "__add__", add)
    kit._adds.cache_clear()
    assert lost("cpu") == "" and not kit._adds("cpu")
    kit._adds.cache_clear()


def test_float32_is_not_computed_in_tf32() -> None:
    assert not torch.backends.cudnn.allow_tf32


def test_an_index_error_may_arrive_late_and_end_the_use_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    copies = 0

    def copy(device: str) -> None:
        nonlocal copies
        copies += 1
        raise torch.AcceleratorError("device-side assert triggered")

    class Select:
        calls = iter(["on the CPU", "on the device"])

        def error_inputs_func(self, *_: object) -> list[ErrorInput]:
            sample = SampleInput(torch.ones(3), args=(0, torch.tensor([7])))
            return [ErrorInput(sample, error_type=IndexError, error_regex="range")] * 2

        def __call__(self, x: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
            if next(self.calls) == "on the CPU":
                raise IndexError("index out of range")
            return x  # the kernel is queued, and its error is not known yet

    for module in ("sweep", "kit"):
        monkeypatch.setattr(f"torch_conformance.{module}.there_and_back", copy)
    monkeypatch.setitem(suite("op").entries, "select", Select())
    assert sweep._run("op", "select", torch.float32, "error", "cpu") == "1 samples"
    assert copies == 3


def test_long_work_has_one_result_for_small_and_large_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for seconds in (1.0, 0.0):  # how long each product takes by this clock
        clock = itertools.count(0.0, seconds)
        monkeypatch.setattr("torch_conformance.kit.time.perf_counter", lambda clock=clock: next(clock))
        with Sizes() as seen:
            assert torch.equal(busy("cpu", 1e-5), torch.ones(256, 256))
        sizes.append(seen.sizes)
    assert sizes == [[256] * 3, [256, 256, 1024, 1024, 1024]]


INTERRUPTED = """
import signal, sys
from torch_conformance.runner import run
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started the tests with SIGINT ignored
worker = '''
import os, sys, time
sys.stdin.readline(), print("{}", flush=True), sys.stdin.readline()
print(os.getpid(), file=open("started", "w"))
time.sleep(600)
'''
try:
    run([{"name": "a"}], {}, lambda record: print("a result"), command=(sys.executable, "-c", worker))
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupted_run_leaves_no_worker_behind(tmp_path: Path) -> None:
    kit = str(Path(__file__).parents[1])
    started = tmp_path / "started"
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], cwd=tmp_path, env={"PYTHONPATH": kit}, stdout=subprocess.PIPE, text=True
    ) as process:
        while not (started.exists() and started.read_text().endswith("\n")):
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.communicate()[0] == "interrupted\n"
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


def test_no_check_is_started_after_the_first_bad_one_if_asked() -> None:
    assert list(run_fake(["a", "fail", "b"], stop=True, jobs=1)) == ["a", "fail"]


def test_every_check_says_what_it_proves_why_where_and_how() -> None:
    checks = all_checks()
    assert len(checks) >= 200
    assert {check.level for check in checks.values()} == set(range(len(LEVELS)))
    for check in checks.values():
        for text in (check.proves, check.why, check.defined, check.chapter):
            assert text.strip(), check.name
        assert check.proves.endswith("."), check.name
        assert check.source().startswith("def "), check.name
        assert re.fullmatch(r"([\w.-]+/[\w.-]+#\d+)?", check.issue), check.name
    assert len({check.issue for check in checks.values()} - {""}) >= 15


def test_the_chapter_of_every_check_is_a_file_of_this_repository() -> None:
    for name in (*all_checks(), *(f"{kind}/case" for kind in report._SWEPT)):
        assert report.chapter_text(report.metadata(name)["chapter"]), name


def test_every_form_of_the_report_names_the_issue_and_the_chapter() -> None:
    name = "streams/ordering/wait_stream_waits"
    facts = {"device": "npu", "torch": "2", "python": "3", "date": "today", "seconds": 1.0}
    summary = report.collect([record(name, "failed")], facts)
    issue, chapter = all_checks()[name].issue, "streams"
    assert issue in summary["checks"][0]["script"]
    for text in (json.dumps(summary), page.page(summary), report.text(summary, [], False)):
        assert issue and issue in text and chapter in text


def test_the_kit_names_no_backend() -> None:
    folder = Path(__file__).resolve().parents[1]
    word = "open" + "reg"
    sources = [path for path in folder.rglob("*") if path.suffix in (".py", ".cpp", ".md", ".toml")]
    naming = [path for path in sources if word in path.read_text().lower()]
    assert naming == []


def test_pytorch_says_which_devices_may_be_mixed() -> None:
    accepted = mixes.oracle(*mixes.QUICK)
    assert list(accepted) == list(mixes.QUICK)
    scalars = {
        name: [not accepted[name][places] for places in ("Ds", "sD", "DC")] for name in ("add.Tensor", "exp.out")
    }
    assert scalars == {"add.Tensor": [True, True, False], "exp.out": [False, False, False]}
    assert len(mixes.names("all")) > 190


@pytest.mark.parametrize(
    ("places", "answer", "result", "said", "found"),
    [
        ("Ds", "no scalars", "noted", "stricter than CUDA: add.Tensor", "PyTorch accepts it; the device: no scalars"),
        (
            "DC",
            "",
            "failed",
            "add.Tensor",
            "the device accepts it; PyTorch: RuntimeError: Expected all tensors to be on",
        ),
    ],
)
def test_a_device_that_takes_more_mixes_fails_and_one_that_takes_fewer_is_noted(
    places: str, answer: str, result: str, said: str, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = dict(mixes.oracle(*mixes.QUICK)["add.Tensor"])
    monkeypatch.setattr(mixes, "outcomes", lambda name, device: answers)
    assert mixes.run("operators/devices/add.Tensor", "meta") == "12 placements"
    answers[places] = answer
    legend = "(D, S: on the device; C, s: on the CPU; S, s: 0-dim)"
    judged = run_check("operators/devices/add.Tensor", "meta")
    assert judged["result"] == result
    assert f"{said} with tensors at {places} {legend}: {found}" in judged["detail"]


def test_every_alert_that_pytorch_documents_has_a_program() -> None:
    if torch.__version__ >= "2.15":
        pytest.skip("since 2.15 the list is also about MPS; the kit's programs are those of the lists of 2.13 and 2.14")
    documentation = torch.use_deterministic_algorithms.__doc__ or ""
    section = documentation.split("when ``mode=True``:")[-1].split("In addition")[0]
    documented = re.findall(r"\* :\w+:`([\w.]+)`", section)
    no_longer = {"torch.cumsum"} if torch.__version__ >= "2.14" else set()
    assert len(documented) >= 25 - len(no_longer)
    assert set(documented) == {name for name, _ in alerts.ALERTS.values() if name} - no_longer


ALERT = "it does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True{})'."


def alerting(warned: str = ALERT.format(", warn_only=True"), raised: str = ALERT.format("")) -> torch.Tensor:
    if torch.are_deterministic_algorithms_enabled():
        if not torch.is_deterministic_algorithms_warn_only_enabled():
            raise RuntimeError(raised)
        warnings.warn(warned, stacklevel=1)
    return torch.ones(2)


@pytest.mark.parametrize(
    ("program", "kind", "found"),
    [
        (lambda: torch.ones(2), NotOffered, "histc gives the same bits in 5 runs, so no alert is needed"),
        (lambda: torch.rand(2), AssertionError, "gives other bits in another run of a deterministic program"),
        (lambda: alerting("another warning"), AssertionError, "raises its alert, but does not warn with warn_only"),
        (lambda: alerting(raised="another error"), RuntimeError, "another error"),
    ],
)
def test_an_operator_alerts_as_pytorch_does_or_gives_the_same_bits(
    program: alerts.Program, kind: type[Exception], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(alerts.ALERTS, "histc", ("", lambda device: alerting))
    assert alerts.run("operators/deterministic/histc", "cpu") == "raises PyTorch's alert"
    monkeypatch.setitem(alerts.ALERTS, "histc", ("", lambda device: program))
    with pytest.raises(kind, match=re.escape(found)):
        alerts.run("operators/deterministic/histc", "cpu")
    assert not torch.are_deterministic_algorithms_enabled()


def test_the_names_of_the_quick_sweep_are_in_pytorchs_databases() -> None:
    for names, database in (
        (sweep.QUICK_OPS, suite("op")),
        (sweep.QUICK_MODULES, suite("module")),
        (sweep.QUICK_OPTIMIZERS, suite("optimizer")),
    ):
        assert set(names) - set(database.entries) == set()


class Broken(TorchDispatchMode):
    """Calls ``kernel`` instead of an operator, but only the ``number``-th time that the operator is called."""

    def __init__(self, operator: object, number: int, kernel: Callable[..., object]) -> None:
        super().__init__()
        self._operator, self._number, self._kernel = operator, number, kernel

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self._number -= func is self._operator
        broken = func is self._operator and self._number == 0
        return (self._kernel if broken else func)(*args, **(kwargs or {}))


class Sizes(TorchDispatchMode):
    """Lists the sizes of the matrices that are multiplied, in ``sizes``."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.ops.aten.mm.default:
            self.sizes.append(len(args[0]))
        return func(*args, **(kwargs or {}))


def refuse(*_: object) -> None:
    raise RuntimeError("the driver says 17")


@pytest.mark.parametrize(
    ("case", "operator", "number", "kernel", "found"),
    [
        # A direction is the gradient of an output, from which backward starts. For a direction of ones, the right
        # gradient of softmax is 0 too, because its results add up to 1. So ones would not show this defect.
        (
            "softmax/float32/backward",
            torch.ops.aten._softmax_backward_data.default,
            2,
            lambda gradient, *_: torch.zeros_like(gradient),
            "sample 1: Tensor-likes are not close!",
        ),
        # neg is linear, so it has second derivatives only with respect to the direction. Each derivative calls neg.
        (
            "neg/float32/double_backward",
            torch.ops.aten.neg.default,
            6,
            lambda direction: direction.clone(),
            "sample 1: Tensor-likes are not close!",
        ),
        (
            "unbind/float32/error",
            torch.ops.aten.unbind.int,
            2,
            refuse,
            "sample 1: the device raises RuntimeError('the driver says 17'), which is no IndexError",
        ),
    ],
)
def test_the_sweep_finds_a_broken_operator(
    case: str, operator: object, number: int, kernel: Callable[..., object], found: str
) -> None:
    assert re.fullmatch(r"\d+ samples", sweep.run(f"operators/op/{case}", "cpu"))
    with Broken(operator, number, kernel), pytest.raises(AssertionError, match=re.escape(found)):
        sweep.run(f"operators/op/{case}", "cpu")


def test_a_case_that_compares_nothing_is_not_offered() -> None:
    with pytest.raises(NotOffered, match="floor/float32/double_backward: the CPU gives no result to compare with"):
        sweep.run("operators/op/floor/float32/double_backward", "cpu")
    op = suite("op")
    errors = op.variants["error"]
    with_errors = [name for name in ("kthvalue", "sub") if errors.applies(op.entries[name], torch.float32)]
    assert with_errors == ["kthvalue"]


def test_an_empty_result_is_compared_unless_nothing_needs_it() -> None:
    with pytest.raises(AssertionError, match=r"shape \(5,\), the CPU's \(0, 3\)"):
        sweep._compare(torch.ones(5), torch.ones(0, 3), "cpu")
    assert sweep._compare(torch.ones(5), torch.ones(0), "cpu", left_empty=True) == 0
    with pytest.raises(AssertionError):
        sweep._compare([True, 1.0], [False, 1.0], "cpu")


def test_the_samples_of_a_sweep_stay_views_on_the_device() -> None:
    whole = torch.randn(4, 3, 2, dtype=torch.complex64)
    samples = [whole[..., 1], whole[1:, 0], torch.randn(1, 3).expand(4, 3), whole.conj(), whole.conj().imag]
    samples[2].requires_grad_()
    assert samples[3].is_conj() and samples[4].is_neg()
    moved = sweep._moved(samples, "meta")
    for there, here in zip(moved, samples, strict=True):
        assert there.device.type == "meta" and there.requires_grad == here.requires_grad
        assert (there.stride(), there.storage_offset()) == (here.stride(), here.storage_offset())
        assert (there.is_conj(), there.is_neg()) == (here.is_conj(), here.is_neg())
    assert moved[0].untyped_storage()._cdata == moved[1].untyped_storage()._cdata


def test_shards_divide_the_checks() -> None:
    def names(*options: str) -> list[str]:
        return select(parser().parse_args(["--device", "cpu", "--no-sweeps", *options]), {})

    parts = [names("--shard", f"{n}/3") for n in (1, 2, 3)]
    assert sorted(name for part in parts for name in part) == sorted(names()) and all(parts)


def test_levels_are_numbers_and_ranges() -> None:
    assert levels_of("0,2-4") == {0, 2, 3, 4}


@pytest.mark.parametrize(
    ("option", "value", "sentence"),
    [
        ("--levels", "9", "levels are 0 to 8, such as 0,2-4, not '9'"),
        ("--levels", "a", "levels are 0 to 8, such as 0,2-4, not 'a'"),
        ("--levels", "3-1", "levels are 0 to 8, such as 0,2-4, not '3-1'"),
        ("--shard", "4/3", "must be I/N with I from 1 to N, not '4/3'"),
        ("--shard", "x", "must be I/N with I from 1 to N, not 'x'"),
        ("--jobs", "0", "must be a number above 0 and below a million, not '0'"),
        ("--jobs", "many", "must be a number above 0 and below a million, not 'many'"),
        ("--timeout", "-1", "must be a number above 0 and below a million, not '-1'"),
        ("--timeout", "inf", "must be a number above 0 and below a million, not 'inf'"),
        ("--import", "a.py --now", "must be MODULE or MODULE:FUNCTION, not 'a.py --now'"),
        ("--device", "npu:1", "must be a device type without an index, such as npu, not 'npu:1'"),
    ],
)
def test_a_wrong_option_is_refused_by_its_name(
    option: str, value: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--device", "cpu", f"{option}={value}"])
    assert ended.value.code == 2
    assert f"error: argument {option}: {sentence}\n" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--baseline", "--resume", "--json", "--html", "--junit", "--scripts"])
def test_a_file_that_cannot_be_used_ends_the_run_before_its_first_check(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged"
    damaged.write_text("neither\n")
    path = damaged if option in ("--baseline", "--resume") else damaged / "below a file"
    assert main(["--device", "cpu", "--checks", "tensors/copies/there_and_back", option, str(path)]) == 2
    output = capsys.readouterr()
    assert output.err.startswith("torch_conformance: ") and str(damaged) in output.err
    assert output.out == "" and damaged.read_text() == "neither\n"


def test_a_device_that_does_not_exist_is_told_apart_from_a_bad_one(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--no-sweeps", "--quiet", "--checks", "tensors/copies/there_and_back"]
    for device, sentence in (
        ("nosuch", "RuntimeError: Expected one of cpu, cuda, "),
        ("PrivateUse1", "RuntimeError: Invalid device string: "),
    ):
        assert main(["--device", device, *options]) == 1
        last = capsys.readouterr().out.splitlines()[-1]
        assert last.startswith(f"There is no device of the type {device!r} in this environment: {sentence}"), last


def test_a_device_without_ordinary_tensors_is_told_apart_from_one_that_does_not_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refusal = RuntimeError("only tensors of 4096 elements\nSee the manual")
    monkeypatch.setattr(torch, "empty", lambda *size, device: (_ for _ in ()).throw(refusal))
    reason = "RuntimeError: only tensors of 4096 elements"
    assert worker.why_missing("cpu") == f"A tensor without elements cannot be made on the device 'cpu': {reason}"


def backend(folder: Path, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Installs a backend for the processes that this test starts. ``code`` is the source of its module."""
    (folder / "torch_young.py").write_text(code)
    information = folder / "torch_young-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_young\nVersion: 1\n")
    (information / "entry_points.txt").write_text("[torch.backends]\ntorch_young = torch_young:load\n")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


@pytest.mark.parametrize(
    ("code", "checks", "result", "detail"),
    [
        (
            "raise OSError('no driver')",
            "tensors/copies/*",
            "failed",
            r"RuntimeError: Failed to load .*torch_young.* Caused by OSError: no driver",
        ),
        ("import os; os.abort()", "tensors/views/*", "crashed", "SIGABRT"),
    ],
)
def test_a_backend_that_breaks_import_torch_is_reported(
    code: str,
    checks: str,
    result: str,
    detail: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    backend(tmp_path, code, monkeypatch)
    path, resumed = tmp_path / "report.json", tmp_path / "resumed"
    options = [
        "--device",
        "young",
        "--checks",
        checks,
        "--json",
        str(path),
        "--resume",
        str(resumed),
    ]
    assert main([*options, "--quiet"]) == 1
    found = json.loads(path.read_text())["checks"]
    assert len(found) >= 5 and {check["result"] for check in found} == {result}
    assert all(re.match(f"import torch: {detail}", check["detail"]) for check in found)
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"No check was run, because the first use of the device {result}: import torch: ")
    assert len(resumed.read_text().splitlines()) == 1  # a run with a repaired backend starts with all checks


def test_without_the_modules_that_pytorchs_databases_need_the_kit_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "expecttest.py").write_text("raise ModuleNotFoundError('No module named expecttest')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    assert main(["--device", "cpu", "--quick"]) == 2
    assert capsys.readouterr().err == (
        "torch_conformance: PyTorch's databases of operators cannot be imported: ModuleNotFoundError: No module named "
        "expecttest. They need numpy and expecttest. --no-sweeps runs the checks that do not need them.\n"
    )


def test_a_run_goes_on_from_its_file(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    Results(path, {"device": "x"}).add(record("tensors/a/b", "passed"))
    with path.open("a") as file:
        file.write('{"name": "cut')
    assert list(Results(path, {"device": "x"}).records) == ["tensors/a/b"]
    text = path.read_text()
    with pytest.raises(ValueError, match="has the results of another run, {'device': 'x'}, and this run is"):
        Results(path, {"device": "y"})
    assert path.read_text() == text
    path.write_text("{}\n[1]\n")
    with pytest.raises(ValueError, match="is not a file that --resume wrote"):
        Results(path, {})


def test_the_files_of_several_parts_can_be_joined(tmp_path: Path) -> None:
    command = ["--device", "cpu", "--checks", "tensors/views/*", "--quiet", "--jobs", "1"]
    for part in ("1", "2"):
        assert main([*command, "--shard", f"{part}/2", "--resume", str(tmp_path / part)]) == 0
    whole = tmp_path / "whole"
    whole.write_text((tmp_path / "1").read_text() + (tmp_path / "2").read_text())
    before = len(whole.read_text().splitlines())
    assert main([*command, "--resume", str(whole), "--json", str(tmp_path / "report.json")]) == 0
    assert len(whole.read_text().splitlines()) == before - 1  # no check ran again, and one header is left
    assert len(json.loads((tmp_path / "report.json").read_text())["checks"]) == before - 2


def test_an_interrupted_run_leaves_no_empty_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("torch_conformance.__main__.run", interrupt)
    files = [tmp_path / name for name in ("baseline", "report.json")]
    options = ["--device", "cpu", "--checks", "tensors/views/*", "--quiet"]
    assert main([*options, "--write-baseline", str(files[0]), "--json", str(files[1])]) == 130
    assert not any(file.exists() for file in files)


def test_a_baseline_forgives_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(report.baseline([record("a", "passed"), record("b", "failed"), record("c", "not offered")]))
    known = report.read_baseline(path)
    assert not report.regressed(record("a", "passed"), known)
    assert report.regressed(record("a", "not offered"), known)
    assert not report.regressed(record("b", "crashed"), known)
    assert report.regressed(record("c", "hung"), known)
    assert report.regressed(record("new", "failed"), known)
    assert report.regressed(record("a", "failed"), {}) and not report.regressed(record("a", "not offered"), {})
    path.write_text('{"device": "npu", "checks": []}')  # as --json writes
    with pytest.raises(ValueError, match="baseline.json is not a file that --write-baseline wrote"):
        report.read_baseline(path)


@pytest.fixture
def summary() -> dict[str, object]:
    names = list(all_checks())
    records = [record(names[0], "passed"), record(names[1], "failed"), record(names[2], "not offered")]
    records.append(record("operators/op/add/float32/forward", "crashed"))
    return report.collect(records, {"device": "npu", "torch": "2", "python": "3", "date": "today", "seconds": 1.0})


def test_the_json_has_a_score_for_each_level_and_all_checks(summary: dict[str, object]) -> None:
    levels = json.loads(json.dumps(summary))["levels"]
    assert [level["title"] for level in levels] == list(LEVELS)
    assert levels[0]["score"] == 50.0 and levels[0]["not offered"] == 1 and levels[1]["score"] is None


def test_the_junit_report_is_xml(summary: dict[str, object]) -> None:
    suite = ElementTree.fromstring(report.junit(summary))[0]
    counts = {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": "4", "failures": "1", "errors": "1", "skipped": "1"}


def test_the_page_needs_nothing_else(summary: dict[str, object]) -> None:
    text = page.page(summary)
    assert not re.search(r"(src|href)=\"(?!#)", text) and "light-dark" in text and "default-src 'none'" in text
    assert "what &lt;happened&gt;" in text and "Ready to run" in text
    assert all(text.encode() for text in (report.junit(summary), report.text(summary, [], False), json.dumps(summary)))


@pytest.fixture(scope="module")
def cpu_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, object]]:
    path = tmp_path_factory.mktemp("run") / "results.json"
    options = ["--device", "cpu", "--quick", "--no-sweeps", "--quiet", "--jobs", "1", "--json", str(path)]
    return main(options), json.loads(path.read_text())


def test_the_cpu_passes_what_applies_to_it(cpu_run: tuple[int, dict[str, object]]) -> None:
    status, found = cpu_run
    assert status == 0, [each for each in found["checks"] if each["result"] in report.BAD]  # type: ignore[attr-defined]
    assert sum(level["passed"] for level in found["levels"]) >= 90  # type: ignore[attr-defined]


def test_abilities_that_the_device_lacks_are_not_offered(cpu_run: tuple[int, dict[str, object]]) -> None:
    checks = {each["name"]: each for each in cpu_run[1]["checks"]}  # type: ignore[attr-defined]
    found = checks["streams/ordering/wait_stream_waits"]
    assert found["result"] == "not offered" and found["detail"].startswith("streams: ")


def test_a_failures_script_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("tensors/copies/there_and_back", "operators/op/add/float32/forward", "trains/modules/lstm")
    for number, name in enumerate(names):
        script = tmp_path / f"{number}.py"
        script.write_text(report.script(name, {"device": "cpu"}, "It works."))
        runpy.run_path(str(script), run_name="__main__")
    assert re.fullmatch(r"\d+ samples\n", capsys.readouterr().out)


def test_every_script_imports_the_names_that_it_uses() -> None:
    for name, check in all_checks().items():
        text = report.script(name, {"device": "npu", "import": "a", "strict_messages": True}, check.proves)
        tables, used, known = [symtable.symtable(text, name, "exec")], set(), set(vars(builtins))
        for statement in ast.parse(text).body:
            known |= {alias.name for alias in getattr(statement, "names", ())} | {getattr(statement, "name", "")}
        while tables:
            table = tables.pop()
            tables += table.get_children()
            used |= {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global()}
        assert used <= known, f"{name}: {used - known}"


def test_a_module_without_a_device_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([])
    assert "--device TYPE is needed" in capsys.readouterr().err
