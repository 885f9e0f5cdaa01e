"""Environment variables of torch_openreg: an error for a bad value names the allowed values."""

from __future__ import annotations

import re
from pathlib import Path

import programs
import pytest
from comparison import DEVICE
from openreg_process import error_of, output_of
from programs import Run

from torch_openreg import _environment, openreg
from torch_openreg._environment import Variable, all_variables

CHOICES = [variable for variable in all_variables() if variable.kind == "choice"]


@pytest.mark.parametrize("variable", CHOICES, ids=lambda variable: variable.name)
def test_a_bad_value_is_named_with_all_that_are_allowed(variable: Variable) -> None:
    for value in variable.choices:
        variable.check(value)
    with pytest.raises(ValueError, match=f"^{variable.name} is 'many'. Set it to .*, or unset it.$") as caught:
        variable.check("many")
    allowed = str(caught.value).partition("Set it to ")[2].removesuffix(", or unset it.")
    assert re.split(r", | or ", allowed.replace(" (the default)", "")) == list(variable.choices)


def test_a_list_of_checks_is_checked_without_torch() -> None:
    (variable,) = [each for each in all_variables() if each.kind == "choices"]
    assert (variable.name, variable.choices) == ("OPENREG_SANITIZER", tuple(openreg.sanitizer._CHECKS))
    for value in (*variable.choices, ",".join(variable.choices), " race , leak,", " "):
        variable.check(value)
    for value in ("rase", "race;init", "race,inti", ",", "all"):
        with pytest.raises(ValueError) as caught:
            _environment.check({variable.name: value})
        assert str(caught.value) == (
            f"OPENREG_SANITIZER is '{value}'. Set it to race, init, memory, leak, graph (separated by commas), or unset it."
        )


def test_the_device_library_knows_the_execution_modes_of_the_table() -> None:
    (variable,) = [each for each in all_variables() if each.name == "OPENREG_EXECUTION"]
    code = "print(get_int('orGetExecutionMode', None))"
    modes = {name: output_of(code, OPENREG_EXECUTION=name.replace("SEED", "7")) for name in variable.choices}
    assert modes == {"inline": "0", "async": "1", "chaos": "2", "early": "0", "late": "2", "random:SEED": "2"}
    *some, last = variable.choices
    _, message = error_of(code, OPENREG_EXECUTION="many")
    allowed = f"{', '.join(some)} or {last} with a SEED from 1 to {2**64 - 1}"
    assert message.endswith(f'OPENREG_EXECUTION="many" is not valid: expected {allowed}')


def test_the_default_is_the_first_choice_and_empty_means_unset() -> None:
    assert [variable.default for variable in CHOICES] == [variable.choices[0] for variable in CHOICES]
    _environment.check({variable.name: "" for variable in all_variables()})


def test_a_program_with_a_variable_that_a_module_of_the_device_reads_loads_the_backend_itself() -> None:
    read = {variable.name for variable in all_variables() if Path(variable.reader).parent.name == "openreg"}
    assert {variable.name for variable in all_variables() if programs.IN_FRONT.match(variable.name)} == read
    code = "from torch_openreg.openreg import sanitizer; print(*sanitizer._sessions[-1].checks)"
    assert programs.python(code, imports=programs.COMPILER, OPENREG_SANITIZER="init").stdout == "init\n"


@pytest.mark.parametrize(
    ("name", "allowed"),
    [
        ("TORCH_OPENREG_AUTOGRAD_THREADS", "0 (the default) or 1"),
        ("TORCH_OPENREG_LAUNCH_TRACEBACK", "0 (the default) or 1"),
        ("OPENREG_POISON", "0 (the default) or 1"),
    ],
)
def test_the_first_use_of_the_device_raises_for_a_bad_value(name: str, allowed: str, run_python: Run) -> None:
    result = run_python("import torch\ntorch.ones(1, device='openreg')", **{name: "yes"})
    assert result.returncode == 1
    assert f"ValueError: {name} is 'yes'. Set it to {allowed}, or unset it." in result.stderr


EMPTY = """
import torch, torch.distributed as dist
x = torch.ones(2, device="openreg", requires_grad=True)
x.sum().backward()
torch.openreg.profiler.start()
dist.init_process_group("occl", store=dist.HashStore(), rank=0, world_size=1)
dist.all_reduce(x.grad)
print(x.grad.tolist(), torch.openreg.device_count(), torch.openreg.get_execution_mode())
dist.destroy_process_group()
"""


def test_a_variable_with_an_empty_value_is_as_if_unset(
    run_python: Run,
) -> None:
    names = [each.name for each in all_variables() if each.reader and not each.name.endswith("_VISIBLE_DEVICES")]
    result = run_python(EMPTY, **dict.fromkeys(names, ""))
    assert (result.stdout, result.stderr) == ("[1.0, 1.0] 2 inline\n", "")


THREADS = """
import threading, torch
seen = []
x = torch.ones(1, device=DEVICE, requires_grad=True)
y = x * 2
y.register_hook(lambda gradient: seen.append(threading.get_native_id()))
y.sum().backward()
print(seen == [threading.get_native_id()])
"""


def test_backward_may_run_on_autograds_threads(run_python: Run) -> None:
    for value, on_this_thread in (("0", True), ("1", False)):
        result = run_python(f"DEVICE = {DEVICE!r}\n" + THREADS, TORCH_OPENREG_AUTOGRAD_THREADS=value)
        assert result.stdout == f"{on_this_thread}\n", result.stderr
