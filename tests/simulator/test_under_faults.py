"""What the sanitizer and fork() do while faults are injected (torch.openreg.faults)."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import programs
import pytest
import torch
from comparison import DEVICE
from forks import fork
from programs import Run
from sanitizer_pairs import forget, ones, race

from torch_openreg import openreg
from torch_openreg.openreg import sanitizer

MODES = pytest.mark.parametrize("mode", ["inline", "async", "chaos"], indirect=True)


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    with openreg.execution_mode(request.param, seed=3):
        yield request.param
        forget()


@MODES
def test_the_end_of_a_session_leaves_the_failures_of_kernels_to_the_program(mode: str) -> None:
    x = ones(4)
    torch.accelerator.synchronize()  # otherwise the fault could meet the kernel of ones()

    def train() -> None:
        with sanitizer.enable("memory"):
            x.add_(1)
        torch.accelerator.synchronize()

    with openreg.faults.inject("kernel:1=illegal"), pytest.raises(RuntimeError, match="an illegal memory access"):
        train()


@MODES
@pytest.mark.parametrize("effect", ["illegal", "lost"])
def test_a_session_ends_even_if_its_wait_fails(mode: str, effect: str) -> None:
    x, numpy = ones(64), torch.Tensor.numpy
    torch.accelerator.synchronize()
    fault = openreg.faults.inject(f"kernel:1={effect}")
    with fault, pytest.raises(torch.AcceleratorError), sanitizer.enable("race,leak") as session:
        x.neg()
        assert mode != "inline"
    assert session.reports == [] and torch.Tensor.numpy is numpy
    with sanitizer.enable("init", mode="report") as later:  # a session that had not ended would be interrupted
        torch.empty(4, device=DEVICE).add_(1)
    assert [report.kind for report in later.reports] == ["init"]
    torch.accelerator.synchronize()  # otherwise the fault could meet the kernel of add_
    with openreg.faults.inject(f"kernel:1={effect}"), pytest.raises(KeyError), sanitizer.enable("leak"):
        with contextlib.suppress(torch.AcceleratorError):
            x.neg()
        raise KeyError
    assert torch.Tensor.numpy is numpy


@MODES
def test_a_session_that_cannot_be_resumed_is_resumed_later_and_keeps_its_reports(mode: str) -> None:
    x, numpy = ones(64), torch.Tensor.numpy
    with sanitizer.enable("race", mode="report") as outer:
        race()
        torch.accelerator.synchronize()
        with openreg.faults.inject("kernel:1=lost"):
            ends = pytest.raises(torch.AcceleratorError)
            with ends, sanitizer.enable("memory"), contextlib.suppress(torch.AcceleratorError):
                x.neg()
                torch.accelerator.synchronize()
            with pytest.raises(torch.AcceleratorError):
                sanitizer.enable("init")
        with sanitizer.enable("memory"):
            pass
        race()
    assert [report.kind for report in outer.reports] == ["race", "race"]
    assert torch.Tensor.numpy is numpy


@pytest.mark.parametrize("effect", ["illegal", "illegal!", "lost"])
def test_findings_are_printed_at_the_end_of_the_process_even_if_its_wait_fails(effect: str) -> None:
    program = f"""
import torch
from torch_openreg.openreg import faults, sanitizer
sanitizer.enable("race,leak", mode="report")
x, side = torch.ones(4, device={DEVICE!r}), torch.Stream(device={DEVICE!r})
with side:
    x.neg()
torch.accelerator.synchronize()
faults.inject("kernel:1={effect}").__enter__()
x.neg()
"""
    result = programs.python(program, OPENREG_SANITIZER="leak", OPENREG_EXECUTION="async")
    assert result.returncode == 1
    assert "OPENREG_SANITIZER: race: " in result.stderr and "Traceback" not in result.stderr
    assert re.search(
        r"OPENREG_SANITIZER: the end of the process cannot wait for the devices: \w+ error: ", result.stderr
    )


# If fork() did not wait, the child could inherit a lock that the copying thread holds, and nobody would release the
# lock. Python holds the GIL during os.fork(), so a copy that needed the GIL would make fork() wait in vain.
def test_a_fork_waits_for_the_copy_that_runs_and_lets_no_other_begin(run_python: Run) -> None:
    parent = (
        "openreg.execution_mode('async')\n"
        "x, pinned = torch.ones(2, device=DEVICE), torch.zeros(2).pin_memory()\n"
        "openreg.synchronize()\n"
        "faults = openreg.faults.inject('copy~300ms').__enter__()\n"
        "for i in range(2): pinned[i].copy_(x[i], non_blocking=True)\n"
        "while faults.counts[0].fired == 0: pass"
    )
    assert fork(run_python, "print(pinned.tolist(), flush=True)", parent) == "[1.0, 0.0]\nchild exited with 0\n"
