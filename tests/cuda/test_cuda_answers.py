"""This device answers as a GPU does. tests/cuda/cuda_answers has the programs, and what an H100 answered."""

from __future__ import annotations

import functools
import json
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import programs
import pytest
import tomllib
import torch
from comparison import DEVICE
from cuda_answers import ANSWERS, AREAS
from programs import importing

FOLDER = Path(__file__).parent
RECORDED = {area: json.loads((ANSWERS / f"{area}.json").read_text())["answers"] for area in AREAS}
# Under its own name the device has a module of its own, whose functions follow torch.accelerator too.
OF_THIS_NAME = [a for a in AREAS if a != "lost" and (DEVICE == "cuda" or a not in ("devices", "streams"))]
ENVIRONMENT = {
    "PYTHONPATH": importing(__file__),
    "OPENREG_MODEL": "cuda-h100",
    "OPENREG_DEVICE_COUNT": "1",
}


def as_cuda(value: Any) -> Any:
    """An answer in small letters, with CUDA's name in place of the device's own."""
    if DEVICE == "cuda":
        return value
    if isinstance(value, str):
        return value.lower().replace("openreg", "cuda")
    if isinstance(value, list):
        return [as_cuda(item) for item in value]
    return {as_cuda(k): as_cuda(v) for k, v in value.items()} if isinstance(value, dict) else value


@functools.cache
def area_here(area: str) -> dict[str, Any]:
    """The answers of this device."""

    command = [sys.executable, "-m", "cuda_answers", "--device", DEVICE, "--ask", area, "0", "1000000"]
    # A GPU is still busy after a call. So is this device where work is queued.
    mode = {"OPENREG_EXECUTION": "async"} if area == "streams" else {}
    result = programs.run(*command, **(ENVIRONMENT | mode), status=0)
    return dict(json.loads(line) for line in result.stdout.splitlines())


def differing(area: str) -> set[str]:
    """The programs to which this device and the GPU give different answers."""
    comparable = getattr(import_module(f"cuda_answers.{area}"), "comparable", lambda answer: answer)
    here, there = area_here(area), RECORDED[area]
    return {program for program in here if as_cuda(comparable(here[program])) != as_cuda(comparable(there[program]))}


@functools.cache
def listed(area: str) -> list[tuple[str, list[str]]]:
    """The known differences under this name, in this PyTorch: a reason, and the patterns of the programs."""
    version = [int(number) for number in torch.__version__.split(".")[:2]]
    rows = tomllib.loads((FOLDER / "cuda_answers" / "different" / f"{area}.toml").read_text())["different"]
    rows = [row for row in rows if DEVICE in row.get("names", (DEVICE,))]
    rows = [row for row in rows if row.get("since", []) <= version <= row.get("until", version)]
    return [(row["reason"], row["programs"]) for row in rows]


@pytest.mark.parametrize("area", AREAS)
def test_the_gpu_answered_every_program(area: str) -> None:
    assert sorted(RECORDED[area]) == sorted(import_module(f"cuda_answers.{area}").PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("area", OF_THIS_NAME)
def test_the_device_answers_as_the_gpu_or_the_difference_is_listed(area: str) -> None:
    patterns = [pattern for _, of_row in listed(area) for pattern in of_row]
    unlisted = [p for p in sorted(differing(area)) if not any(re.search(pattern, p) for pattern in patterns)]
    assert [(p, area_here(area)[p], RECORDED[area][p]) for p in unlisted] == []


@pytest.mark.parametrize("area", OF_THIS_NAME)
def test_every_listed_difference_exists(area: str) -> None:
    programs_here, wrong = area_here(area), differing(area)
    for reason, patterns in listed(area):
        for pattern in patterns:
            assert any(re.search(pattern, program) for program in RECORDED[area]), (reason, pattern)
            found = {program for program in programs_here if re.search(pattern, program)}
            assert found <= wrong, f"{reason}: {sorted(found - wrong)} are answered as by the GPU"


@pytest.mark.slow
def test_what_makes_a_process_lose_a_gpu_raises_an_error_here() -> None:
    """A GPU reports the error in a later call, and is of no use afterwards. Here the call itself raises."""

    def complains(answer: dict[str, Any]) -> bool:
        return "error" in answer or "AcceleratorError" in str(answer["value"]) or answer["value"][0] != "nothing"

    here, there = area_here("lost"), RECORDED["lost"]
    assert [program for program in here if complains(there[program]) and not complains(here[program])] == []


CELLS = f"""
import itertools, json, sys, warnings
import torch
warnings.simplefilter("ignore")
from tests.simulator.device_models.cells import pin
from sample_inputs import sample_inputs
pin((9, 0))
from torch.testing._internal.common_methods_invocations import op_db
recorded = json.load(open({str(ANSWERS / "cells.json")!r}))["answers"]
# The models know the kernels for strided tensors only: CUDA has no kernel of this operator for sparse tensors.
recorded.pop("sparse_mm_reduce")
# as_strided: the samples are views, and a copy to a device has another storage. ldl_solve: CUDA refuses hermitian=True,
# and the models do not.
skipped = ("as_strided", "linalg.ldl_solve")
def refusal(op, dtype, last):
    try:
        for sample in itertools.islice(sample_inputs(op, getattr(torch, dtype)), last + 1):
            moved = sample.transform(lambda value: value.to({DEVICE!r}) if isinstance(value, torch.Tensor) else value)
            op(moved.input, *moved.args, **moved.kwargs)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}".replace({DEVICE!r}, "cuda")
    return "nothing"
wrong, compared = [], 0
for op in op_db:
    gpu = recorded.get(op.formatted_name, {{"takes": []}})
    refuses = gpu.get("refuses", {{}}) if op.name not in skipped else {{}}
    cells = refuses | {{dtype: (0, "nothing") for dtype in gpu["takes"] if dtype not in gpu.get("cpu", ())}}
    for dtype, (number, message) in cells.items():
        compared += 1
        if not (here := refusal(op, dtype, number)).startswith(message):
            wrong.append([op.formatted_name, dtype, message, here])
print(json.dumps([compared, wrong]))
"""


@pytest.mark.slow
def test_operators_take_and_refuse_the_dtypes_that_they_take_and_refuse_on_the_gpu() -> None:
    result = programs.python(CELLS, **ENVIRONMENT, status=0)
    compared, wrong = json.loads(result.stdout.splitlines()[-1])
    assert compared > 5000
    assert wrong == []
