"""Records which dtypes each operator of OpInfo takes on a GPU.

    PYTHONPATH=tests/cuda:tests/support python -m cuda_answers.cells

Needs PyTorch for CUDA, numpy and expecttest. A cell is an operator with one dtype that the CPU or CUDA takes by OpInfo.
gpu/cells.json has for each operator:
  takes     the dtypes of which the GPU refuses no sample that the CPU computes
  refuses   dtype: the first sample that the GPU refuses and the CPU computes, and the first line of the error
  cpu       dtype: the first sample that only the GPU computes, and the first line of the CPU's error
  differs   dtype: the first sample whose results differ in dtype, shape or strides: of the GPU, of the CPU
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import ANSWERS
from .__main__ import environment, refuse_a_simulation, write

SECONDS = 15.0  # for one operator with one dtype
SAMPLES = 200


def first_line(error: Exception) -> str:
    return f"{type(error).__qualname__}: {str(error).splitlines()[0][:300]}"


def metadata(value: Any) -> list[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    return [
        [str(t.dtype), list(t.shape), list(t.stride()) if t.layout is torch.strided else str(t.layout)]
        for t in tree_leaves(value)
        if isinstance(t, torch.Tensor) and not t.is_nested
    ]


def cell(op: Any, dtype: Any) -> dict[str, Any] | None:
    """What the samples do on the GPU. None if OpInfo makes no samples of this dtype."""
    import torch
    from sample_inputs import sample_inputs

    said: dict[str, Any] = {}
    stop = time.monotonic() + SECONDS
    try:
        samples = list(itertools.islice(sample_inputs(op, dtype), SAMPLES))
    except Exception:
        return None
    for number, sample in enumerate(samples):
        if time.monotonic() > stop:
            break
        moved = sample.transform(lambda v: v.to("cuda") if isinstance(v, torch.Tensor) else v)
        try:
            there = op(moved.input, *moved.args, **moved.kwargs)
            torch.cuda.synchronize()
        except Exception as error:
            there = error
        try:
            here = op(sample.input, *sample.args, **sample.kwargs)
        except Exception as error:
            here = error
        if isinstance(there, Exception):
            if not isinstance(here, Exception):
                said.setdefault("refuses", [number, first_line(there)])
        elif isinstance(here, Exception):
            said.setdefault("cpu", [number, first_line(here)])
        elif number < 20 and metadata(there) != metadata(here):
            said.setdefault("differs", [number, metadata(there), metadata(here)])
    return said


def operator(op: Any) -> dict[str, Any]:
    """The answers of an operator's cells, as the file has them."""
    dtypes = sorted(set(op.dtypes) | set(op.dtypesIfCUDA), key=str)
    cells = {str(t).removeprefix("torch."): said for t in dtypes if (said := cell(op, t)) is not None}
    answers: dict[str, Any] = {"takes": [dtype for dtype, said in cells.items() if "refuses" not in said]}
    for kind in ("refuses", "cpu", "differs"):
        if of_kind := {dtype: said[kind] for dtype, said in cells.items() if kind in said}:
            answers[kind] = of_kind
    return answers


def ask(first: int, step: int, known: set[str]) -> None:
    """Prints a line for each operator that is not known: its index, its name and its answers."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    warnings.simplefilter("ignore")
    for index in range(first, len(op_db), step):
        op = op_db[index]
        if op.formatted_name not in known:
            print(json.dumps([index, op.formatted_name, operator(op)]), flush=True)
            torch.cuda.synchronize()  # ends the process if the operator has made the GPU unusable; gather() goes on


def gather(first: int, step: int, seconds: float, options: list[str]) -> dict[str, Any]:
    """The answers of every step-th operator, as far as the time allows."""
    answers: dict[str, Any] = {}
    stop = time.monotonic() + seconds
    while True:
        command = [sys.executable, "-m", "cuda_answers.cells", *options, "--ask", str(first), str(step)]
        try:
            out = subprocess.run(
                command, stdout=subprocess.PIPE, env=environment(), timeout=max(1.0, stop - time.monotonic())
            )
            text, status = out.stdout, out.returncode
        except subprocess.TimeoutExpired as late:
            text, status = late.stdout or b"", 0
        lines = [json.loads(line) for line in text.decode().splitlines() if line.startswith("[")]
        for index, name, said in lines:
            answers[name] = said
            first = index + step
        if status == 0 or time.monotonic() > stop:
            return answers
        if not lines:
            first += step  # this operator ended the process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default=str(ANSWERS / "cells.json"), help="default: gpu/cells.json")
    parser.add_argument("--complete", action="store_true", help="only the operators that the file does not have")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the time for all operators (default: 3600)")
    parser.add_argument("--ask", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    path = Path(options.output)
    answers: dict[str, Any] = json.loads(path.read_text())["answers"] if options.complete else {}
    if options.ask:
        ask(*options.ask, set(answers))
        return
    import torch

    refuse_a_simulation(path)
    if options.complete:
        head = json.loads(path.read_text())
        if (head["device"], head["torch"]) != (torch.cuda.get_device_name(), torch.__version__):
            parser.error(f"{path} has the answers of {head['device']} with PyTorch {head['torch']}")
    with ThreadPoolExecutor(options.jobs) as pool:
        passed = ["--output", options.output, *(["--complete"] if options.complete else [])]
        parts = [pool.submit(gather, i, options.jobs, options.seconds, passed) for i in range(options.jobs)]
        for part in parts:
            answers.update(part.result())
    write(path, torch.cuda.get_device_name(), dict(sorted(answers.items())))


if __name__ == "__main__":
    main()
