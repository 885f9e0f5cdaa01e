"""torch.cuda in TorchScript under the type cuda: torch_openreg/_cuda/csrc/TorchScript.cpp.

Each test runs in a process of its own.

The names and their meaning are those of register_cuda_ops.cpp and cuda.h in PyTorch's torch/csrc/jit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cuda_builds import AS_CUDA
from programs import Run

pytestmark = AS_CUDA

Scripted = Callable[..., Any]


@pytest.fixture
def scripted(run_python: Run, tmp_path: Path) -> Scripted:
    """A function that runs a program and returns what ``result`` is at its end. torch.jit.script reads the program's
    source, so the program is a file.
    """

    def run(program: str, **environment: str) -> Any:
        (tmp_path / "scripted.py").write_text(f"import torch\n{program}")
        code = f"""
import json, sys, warnings
warnings.filterwarnings("ignore", message=".*torch.jit.*")
sys.path.insert(0, {str(tmp_path)!r})
import scripted
print(json.dumps(scripted.result))
"""
        result = run_python(code, TORCH_OPENREG_AS="cuda", **environment, status=0, errors="")
        return json.loads(result.stdout)

    return run


def test_devices_are_asked_and_set(scripted: Scripted) -> None:
    program = """
def function():
    first = torch.cuda.current_device()
    torch.cuda.set_device(1)
    second = torch.cuda.current_device()
    with torch.cuda.device(torch.device("cuda:0")):
        inner = torch.cuda.current_device()
    before = torch.cuda._exchange_device(0)
    default = torch.cuda.current_stream(-1).id() == torch.cuda.default_stream(-1).id()
    return torch.cuda.device_count(), first, second, inner, torch.cuda.current_device(), before, default
result = torch.jit.script(function)()
"""
    assert scripted(program) == [2, 0, 1, 0, 0, 1, True]


@pytest.mark.parametrize("call", ["set_device(2)", "_exchange_device(2)", "current_stream(2)", "synchronize(2)"])
def test_a_device_that_is_not_there_is_refused_and_the_device_stays_usable(call: str, scripted: Scripted) -> None:
    program = f"""
def function():
    torch.cuda.{call}
def twice(x):
    return torch.cuda.current_device(), (x * 2).sum().item()
try:
    torch.jit.script(function)()
    result = "not refused"
except RuntimeError as error:
    result = [str(error).splitlines()[-3:], torch.jit.script(twice)(torch.ones(3, device="cuda"))]
"""
    message, usable = scripted(program)
    assert message == [
        "RuntimeError: CUDA error: invalid device ordinal",
        "GPU device may be out of range, do you have enough GPUs?",
        "It must be in [0, 2), but got 2.",
    ]
    assert usable == [0, 6.0]


@pytest.mark.parametrize("mode", ["inline", "async", "chaos"])
def test_work_runs_on_the_stream_of_the_block_and_the_streams_are_current_again_afterwards(
    mode: str, scripted: Scripted
) -> None:
    program = """
def function(x):
    default = torch.cuda.default_stream(0)
    mine, other = torch.cuda.Stream(torch.device("cuda:0"), 0), torch.cuda.Stream(torch.device("cuda:1"), 0)
    mine.wait_stream(torch.cuda.current_stream(0))
    with torch.cuda.stream(mine):
        on_mine = torch.cuda.current_stream(0).id() == mine.id()
        y = x @ x
        with torch.cuda.stream(other):
            on_other = torch.cuda.current_stream(1).id() == other.id() and torch.cuda.current_device() == 1
        again = torch.cuda.current_stream(0).id() == mine.id() and torch.cuda.current_device() == 0
    event = torch.cuda.Event(False, False, False)
    mine.record_event(event)
    default.wait_event(event)
    z = y + 1
    after = torch.cuda.current_stream(0).id() == default.id()
    torch.cuda.synchronize()
    done = event.query() and mine.query() and default.query()
    return z, [on_mine, on_other, again, after, done, mine.device == torch.device("cuda:0"), mine.device_index() == 0]
x = torch.randn(64, 64)
z, checks = torch.jit.script(function)(x.cuda())
result = [torch.equal(z.cpu(), x @ x + 1), *checks]
"""
    assert scripted(program, OPENREG_EXECUTION=mode) == [True] * 8


def test_events_measure_time_and_refuse_what_cuda_refuses(scripted: Scripted) -> None:
    program = """
import time
def elapsed(x, timed: bool) -> float:
    stream = torch.cuda.current_stream(0)
    start, end = torch.cuda.Event(timed, False, False), torch.cuda.Event(timed, True, False)
    start.record(stream)
    for _ in range(20):
        x = x @ x
    end.record(stream)
    end.wait(torch.cuda.Stream(torch.device("cuda:0"), 0))
    end.synchronize()
    return start.elapsed_time(end)
def shared():
    return torch.cuda.Event(True, False, True).query()
x = torch.eye(128, device="cuda")
begin = time.perf_counter()
result = [0 < torch.jit.script(elapsed)(x, True) <= (time.perf_counter() - begin) * 1000]
for function, arguments in ((elapsed, (x, False)), (shared, ())):
    try:
        torch.jit.script(function)(*arguments)
    except RuntimeError as error:
        result.append(str(error).splitlines()[-1])
"""
    measured, untimed, shared = scripted(program)
    assert measured
    assert untimed == "RuntimeError: Both events must be created with argument 'enable_timing=True'."
    assert shared == "RuntimeError: torch.cuda.Event: interprocess=True needs enable_timing=False."


def test_a_saved_module_runs_in_another_process(run_python: Run, scripted: Scripted, tmp_path: Path) -> None:
    file = tmp_path / "module.pt"
    program = f"""
class Module(torch.nn.Module):
    def forward(self, x):
        stream = torch.cuda.Stream(torch.device("cuda", torch.cuda.current_device()), 0)
        stream.wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(stream):
            x = x * 3
        torch.cuda.current_stream(0).wait_stream(stream)
        return x
torch.jit.script(Module()).save({str(file)!r})
result = True
"""
    assert scripted(program)
    code = f"""
import warnings, torch
warnings.filterwarnings("ignore", message=".*torch.jit.*")
print(torch.jit.load({str(file)!r})(torch.ones(2, device="cuda")).tolist())
"""
    result = run_python(code, TORCH_OPENREG_AS="cuda", OPENREG_EXECUTION="async")
    assert (result.returncode, result.stderr, result.stdout) == (0, "", "[3.0, 3.0]\n")
