"""How the kit judges: missing operators, refusals, notes, reasons of failures, and its reports about several backends."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from test_kit import record
from torch_conformance import abilities, kit, page, report
from torch_conformance.__main__ import main
from torch_conformance.forms import forms
from torch_conformance.kit import accepted, pending, raises, refused, same, wording
from torch_conformance.registry import Check, NotOffered, all_checks, device_side, missing_operator
from torch_conformance.runner import WorkerDied, ask_once
from torch_conformance.worker import run_check

FACTS = {"device": "npu", "torch": "2", "python": "3", "date": "today", "seconds": 1.0}
Outcome = Callable[[Callable[[str], object]], dict[str, object]]


@pytest.fixture
def outcome(monkeypatch: pytest.MonkeyPatch) -> Outcome:
    """Runs a function as the body of a check, and returns the answer of the worker without the traceback."""

    def run(body: Callable[[str], object]) -> dict[str, object]:
        monkeypatch.setitem(all_checks(), "tensors/copies/there_and_back", Check("a", "", "", "", "", body))  # type: ignore[arg-type]
        answer = run_check("tensors/copies/there_and_back", "cpu")
        answer.pop("traceback", None)
        return answer

    return run


def raising(error: Exception) -> Callable[..., object]:
    def call(*_: object) -> None:
        raise error

    return call


@pytest.mark.parametrize(
    ("error", "operator", "inside"),
    [
        (RuntimeError("Could not run 'aten::mm.out'\nwith arguments"), "aten::mm.out", "needs operator"),
        (RuntimeError(repr("Could not run 'aten::mm.out' \"")), "aten::mm.out", "needs operator"),
        (NotImplementedError("The operator 'aten::mm' is not implemented for npu"), "aten::mm", "needs operator"),
        (NotImplementedError("no kernel for aten.mm.default"), "aten::mm", "needs operator"),
        (RuntimeError("Operator 'aten::mm.out' is not implemented for device npu"), "aten::mm.out", "needs operator"),
        (RuntimeError("expected aten::mm to have two operands"), "", "passed"),
        (NotImplementedError("implement resizePrivateUse1Bytes"), "", "not offered"),
        (NotImplementedError("Could not run 'conformance::twice'"), "", "not offered"),
    ],
)
def test_a_missing_operator_is_told_by_its_name(error: Exception, operator: str, inside: str, outcome: Outcome) -> None:
    assert missing_operator(error) == operator
    needs = {"result": "needs operator", "detail": f"needs operator {operator}", "operator": operator}
    assert (outcome(raising(error)) == needs) is bool(operator)

    def refusal(device: str) -> None:
        with raises(RuntimeError):  # the error of a missing operator refuses nothing
            device_side(raising(error))

    assert outcome(refusal)["result"] == inside


def test_a_dtype_that_the_device_lacks_is_not_offered(outcome: Outcome) -> None:
    for said in ("unsupported tensor dtype", "npu: Unsupported dtype for add"):
        expected = {"result": "not offered", "detail": f"the device lacks a dtype: RuntimeError: {said}"}
        assert outcome(raising(RuntimeError(said))) == expected
    assert outcome(raising(RuntimeError("the dtype of out= is unsupported")))["result"] == "failed"


def test_a_stub_of_pytorch_without_a_place_for_the_device_is_not_offered(outcome: Outcome) -> None:
    said = "DispatchStub: unsupported device type"
    detail = f"PyTorch's stub has no place for a kernel of this device: RuntimeError: {said}lazy"
    assert outcome(raising(RuntimeError(f"{said}lazy"))) == {"result": "not offered", "detail": detail}
    assert outcome(raising(RuntimeError("DispatchStub: missing kernel for npu")))["result"] == "failed"


@pytest.mark.parametrize("mark", ".:")
def test_a_fused_attention_that_a_device_repeats_as_missing_is_not_offered(mark: str, outcome: Outcome) -> None:
    said = f"the server says: attention not implemented{mark} This is an operator for privateuse1 backends, please"
    assert outcome(raising(RuntimeError(said))) == {"result": "not offered", "detail": f"RuntimeError: {said}"}


def test_what_the_backend_does_not_override_is_not_offered(outcome: Outcome) -> None:
    hooks = "You should register hooks"
    missing = {"result": "not offered", "detail": f"NotImplementedError: {hooks}"}
    assert outcome(raising(NotImplementedError(hooks))) == missing
    missing["detail"] = "torch.cpu has no no_such_function"
    assert outcome(lambda device: torch.cpu.no_such_function()) == missing  # type: ignore[attr-defined]
    assert outcome(lambda device: torch.nn.no_such_class())["result"] == "failed"  # type: ignore[attr-defined]
    assert outcome(lambda device: textwrap.indent(torch.cpu, "  "))["result"] == "failed"  # type: ignore[arg-type]


def test_the_report_ends_with_the_operators_that_checks_wait_for() -> None:
    names = ["tensors/copies/there_and_back", "tensors/copies/that_convert", "tensors/copies/that_broadcast"]
    records = [{**record(name, "needs operator"), "operator": "aten::mm.out"} for name in names]
    records[0]["operator"] = "aten::arange.start_out"
    found = report.collect(records, FACTS)
    waiting = [(each["operator"], len(each["checks"])) for each in found["operators"]]
    assert waiting == [("aten::mm.out", 2), ("aten::arange.start_out", 1)]
    lines = report.text(found, [], False)
    assert "     2  aten::mm.out\n        write:   mm.out (structured)\n        derived: mm\n" in lines
    assert "        write:   arange.start_out\n        derived: arange, arange.start, arange.start_step," in lines
    assert "mm.out (structured)" in page.page(found)


def test_pytorchs_file_says_which_forms_of_an_operator_a_backend_writes() -> None:
    assert forms("aten::add_.Tensor")[0] == ["add.out (structured)"]
    assert forms("aten::convolution_overrideable")[0] == ["convolution_overrideable"]
    assert forms("aten::_thnn_fused_lstm_cell")[0] == ["_thnn_fused_lstm_cell"]  # of CUDA and MPS, but not of the CPU
    assert forms("acme::add") == ([], [])


class Unreadable(torch.Tensor):
    """A tensor that cannot be compared."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if func is torch.isclose:
            raise ValueError("the device says so")
        return super().__torch_function__(func, types, args, kwargs)


def test_a_failure_tells_the_statement_and_the_cause(outcome: Outcome) -> None:
    def bare(device: str) -> None:
        assert (
            device == "npu"
        )  # fmt: skip

    found = outcome(bare)
    assert (found["result"], found["at"]) == ("failed", 'assert ( device == "npu" )')
    with pytest.raises(ValueError, match="the device says so"):
        same(torch.ones(2).as_subclass(Unreadable), torch.zeros(2))


class Resized(torch.Tensor):
    """A tensor whose memory was resized without its shape."""

    def cpu(self) -> torch.Tensor:
        return torch.ones(3)


def test_a_shape_that_is_not_that_of_the_values_is_a_failure() -> None:
    with pytest.raises(AssertionError, match=re.escape("and its copy on the CPU has ((3,), torch.float32)")):
        same(torch.ones(0).as_subclass(Resized), torch.ones(3))


def test_the_reason_of_an_abort_is_shown_before_its_stack() -> None:
    words = "".join(["  what():  no queue\n", *(f"frame #{n}: somewhere\n" for n in range(50))])
    code = f"import os, sys; sys.stderr.write({words!r}); sys.stderr.flush(); os.abort()"
    with pytest.raises(WorkerDied) as died:
        ask_once({}, {}, (sys.executable, "-c", code))
    lines = died.value.args[1].splitlines()
    assert lines[:3] == ["import torch: SIGABRT", "  what():  no queue", "frame #44: somewhere"]


def refuses(error: Exception) -> Callable[[str], None]:
    def body(device: str) -> None:
        with raises(RuntimeError, "device"):
            raise error

    return body


def test_other_words_are_noted_unless_they_count(outcome: Outcome, monkeypatch: pytest.MonkeyPatch) -> None:
    words = refuses(RuntimeError("expected an npu tensor"))
    kind = refuses(IndexError("the device is wrong"))
    assert outcome(words)["detail"] == "wording: the message does not say 'device': expected an npu tensor"
    assert outcome(kind)["detail"] == "wording: raises IndexError, not RuntimeError: the device is wrong"
    in_python = refuses(AssertionError("device"))
    assert outcome(in_python)["detail"] == "wording: raises AssertionError, not RuntimeError: device"

    def shown(device: str) -> None:
        wording("repr() is Tensor()")

    assert [outcome(body)["result"] for body in (words, kind, in_python, shown)] == ["noted"] * 4
    assert outcome(refuses(OSError("device")))["result"] == "failed"
    assert outcome(refuses(NotOffered("no device module")))["result"] == "not offered"
    monkeypatch.setattr("torch_conformance.kit.strict_messages", True)
    assert [outcome(body)["result"] for body in (words, kind, in_python, shown)] == ["failed"] * 4


def test_only_a_wrong_value_of_a_mix_that_cuda_accepts_is_a_failure(outcome: Outcome) -> None:
    assert outcome(lambda device: accepted(lambda: torch.ones(2), torch.ones(2)))["result"] == "passed"
    assert outcome(lambda device: accepted(lambda: torch.ones(2), torch.zeros(2)))["result"] == "failed"
    found = outcome(lambda device: accepted(raising(RuntimeError("no scalars")), torch.ones(2)))
    assert found["result"] == "noted" and str(found["detail"]).endswith("raises RuntimeError: no scalars")
    found = outcome(lambda device: accepted(raising(AssertionError("no mixed math")), torch.ones(2)))
    assert found["result"] == "noted" and str(found["detail"]).endswith("raises AssertionError: no mixed math")
    assert outcome(lambda device: refused(lambda: None))["result"] == "failed"
    assert outcome(lambda device: None)["result"] == "passed"  # notes are those of one check


def test_a_device_without_streams_may_refuse_when_the_result_is_read(
    outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.Tensor, "cpu", raising(RuntimeError("two devices")))
    result = torch.ones(1, device="meta")
    for has_streams, expected in ((False, "passed"), (True, "failed")):
        monkeypatch.setattr(kit, "_missing", lambda name, device, has=has_streams: None if has else "no streams")
        assert outcome(lambda device: refused(lambda: [result]))["result"] == expected
        noted = outcome(lambda device: accepted(lambda: result, result))["result"]
        passed = outcome(lambda device: kit.taken_or_refused(lambda: result, result))["result"]
        assert (noted, passed) == (("failed", "failed") if has_streams else ("noted", "passed"))
    monkeypatch.undo()
    assert outcome(lambda device: refused(lambda: torch.ones(1)))["result"] == "failed"


class Queue:
    """A stream, and the events on it. The answers of query() are false from the question ``number`` on, counted from 0."""

    def __init__(self, number: int) -> None:
        self._left = number

    def record_event(self) -> Queue:
        return self

    def query(self) -> bool:
        self._left -= 1
        return self._left >= 0


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (4, None),
        (99, NotOffered("the device computes before a call returns")),
        (5, AssertionError("Stream.query() says that the stream is done, and an event on it is not")),
    ],
)
def test_pending_work_is_found_by_launching_more(
    number: int, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue(number)
    monkeypatch.setattr("torch.accelerator.current_stream", lambda device: queue)
    if error is None:
        assert pending("cpu") is queue  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(type(error), match=re.escape(str(error))):
            pending("cpu")


def test_the_same_reason_is_explained_once() -> None:
    names = [*all_checks()][:5]
    records = [record(name, "failed") for name in names[:3]] + [record(name, "hung") for name in names[3:]]
    found = report.text(report.collect(records, FACTS), records, False)
    assert f"FAILED {names[0]}, and 2 more for the same reason\n" in found
    assert found.count("  proves: ") == 3


def test_a_level_of_which_less_than_half_is_offered_has_no_score() -> None:
    names = [*all_checks()][:3]
    records = [record(names[0], "passed"), *(record(name, "not offered") for name in names[1:])]
    found = report.collect(records, FACTS)
    assert found["levels"][0]["score"] is None
    assert re.search(r"0 loads +- +1 of 3 ", report.text(found, [], False))


def python(code: str, *folders: Path) -> str:
    path = os.pathsep.join(map(str, (*folders, Path(__file__).parents[1])))
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError(\"Could not run 'aten::mm.out'\" + 3000 * '.')",
        "NotImplementedError(\"The operator 'aten::mm.out' is not implemented for npu\")",
    ],
)
def test_an_operator_that_another_process_or_thread_lacks_is_told_by_its_name(error: str) -> None:
    code = f"raise {error}"
    with pytest.raises(
        NotImplementedError, match=r"^Could not run 'aten::mm.out' in a process that the check has start"
    ):
        kit.start_python(code)
    with pytest.raises(NotImplementedError) as found:
        kit.in_threads(lambda: 1, lambda: kit.python(code))
    assert missing_operator(found.value) == "aten::mm.out"


def test_only_the_end_of_a_process_must_be_silent() -> None:
    kit.ends_silently("import sys; sys.stderr.write('compiling a kernel')")
    with pytest.raises(AssertionError, match=re.escape("(0, 'a leak') is not (0, '')")):
        kit.ends_silently("import atexit, sys; atexit.register(sys.stderr.write, 'a leak')")
    with pytest.raises(AssertionError, match=re.escape("(3, '') is not (0, '')")):
        kit.ends_silently("import atexit, os; atexit.register(os._exit, 3)")
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        kit.ends_silently("1 / 0")


def test_calls_in_threads_run_at_once_and_the_first_error_is_raised() -> None:
    barrier, caller = threading.Barrier(2), threading.get_ident()
    first, second = kit.in_threads(*[lambda: barrier.wait(30) >= 0 and threading.get_ident()] * 2)
    assert caller != first != second != caller
    with pytest.raises(ZeroDivisionError):
        kit.in_threads(lambda: 1, lambda: 1 // 0, lambda: [][0])


def test_a_backend_without_autoload_is_imported_in_all_processes(tmp_path: Path) -> None:
    (tmp_path / "young.py").write_text("import sys\ndef start():\n    sys.young = 'started'\n")
    code = """
import os, subprocess, sys
from torch_conformance import loading
loading.use("young:start")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "1"
import torch
from torch_conformance.abilities import _missing
child = [sys.executable, "-c", "import sys, torch; print(sys.young)"]
print(sys.young, subprocess.run(child, capture_output=True, text=True).stdout.strip())
print(_missing("autoload", "cpu"))
"""
    missing = "autoload: NotOffered: the backend has no entry point in the group torch.backends: --import loads it"
    assert python(code, tmp_path) == f"started started\n{missing}\n"
    facts = {"device": "npu", "import": "young:start"}
    assert 'loading.use("young:start")' in report.script("tensors/copies/there_and_back", facts, "It works.")


def test_a_device_that_does_not_pin_has_no_host_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch 2.13 crashes in torch.accelerator.empty_host_cache() if the backend has no host allocator."""
    monkeypatch.setattr(abilities, "accelerator", lambda device: None)
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: None, raising=False)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    with pytest.raises(NotOffered, match=re.escape("pin_memory() gives a tensor that is not pinned")):
        abilities.ABILITIES["host_cache"]("cpu")
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    abilities.ABILITIES["host_cache"]("cpu")


def test_a_device_without_a_dtype_for_autocast_does_not_offer_it() -> None:
    code = """
import torch, types
torch.utils.rename_privateuse1_backend("foo")
module = types.ModuleType("foo")
module.get_amp_supported_dtype = lambda: []
torch._register_device_module("foo", module)
from torch_conformance import abilities
print(abilities._missing("amp", "foo"))
module.get_amp_supported_dtype = lambda: [torch.float16]
abilities._missing.cache_clear()
print(abilities._missing("amp", "foo"))
"""
    assert python(code) == "amp: NotOffered: the device does not support autocast in torch.float16\nNone\n"


def test_a_device_without_a_profiler_does_not_offer_it() -> None:
    code = """
import torch, types
torch.utils.rename_privateuse1_backend("foo")
module = types.ModuleType("foo")
module.synchronize = lambda device=None: None
torch._register_device_module("foo", module)
from torch_conformance import abilities
torch.empty = lambda *size, device: torch.ones(4)
print(torch.profiler.ProfilerActivity.PrivateUse1 in torch.profiler.supported_activities())
print(abilities._missing("profiler", "foo"))
"""
    assert python(code) == "True\nprofiler: NotOffered: a profile of the device has no device event\n"


def test_several_backends_are_shown_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = [*all_checks()][:2]
    for stem, count in (("one", 2), ("two", 1)):
        records = [record(name, result) for name, result in zip(names[:count], ("passed", "failed"), strict=False)]
        (tmp_path / stem).write_text(json.dumps(report.collect(records, FACTS)))
    html = tmp_path / "page.html"
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two"), "--html", str(html)]) == 0
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["passed", "of", "offered", "npu", "(one)", "npu", "(two)"],
        ["0", "loads", "1", "of", "2", "1", "of", "1"],
        [],
        ["check", "npu", "(one)", "npu", "(two)"],
        [names[1], "failed", "not", "run"],
    ]
    text = html.read_text()
    assert 'title="what &lt;happened&gt;' in text and "default-src 'none'" in text
    with pytest.raises(SystemExit):
        main(["compare", str(html)])
    assert "is not a file that --json wrote" in capsys.readouterr().err


def test_a_chapter_can_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--chapter", "streams"]) == 0
    assert capsys.readouterr().out.startswith("# ")
    assert main(["--chapter", "nosuch"]) == 2
