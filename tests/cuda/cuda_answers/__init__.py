"""Small programs, and what a real GPU answered to each of them.

An area is a module with a list PROGRAMS. A program is Python text. Its answer is the value of its last line, if that is
an expression, or the error that the program raised; and the warnings that it gave. On a machine with a GPU and PyTorch
for CUDA, `PYTHONPATH=tests/cuda python -m cuda_answers` writes the answers of each area into the folder gpu/.
tests/cuda/test_cuda_answers.py asks this package's device, under both of its names, and compares. The folder different/
has the known differences, each with its reason.

A program may use: torch, F (torch.nn.functional), DEVICE (the type), module (torch.cuda, or the module of the type that
is under test) and the names of its area's module. A program that says "torch.cuda" is asked under that name only. Every
program must work with one device.
"""

from __future__ import annotations

import ast
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

ANSWERS = Path(__file__).with_name("gpu")
AREAS = ("waits", "errors", "devices", "precision", "nondeterminism", "streams", "memory", "lost")
# The areas whose programs have a process each: an allocator that has allocated nothing yet, or a GPU that is lost.
SEPARATE = ("memory", "lost")


def plain(value: Any) -> Any:
    """The value as JSON keeps it. A tensor becomes its dtype, device, shape and values."""
    import torch

    if isinstance(value, torch.Tensor):
        return [str(value.dtype), value.device.type, list(value.shape), plain(value.detach().cpu().tolist())]
    if isinstance(value, complex) or (isinstance(value, float) and not math.isfinite(value)):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in (sorted(value) if isinstance(value, set) else value)]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    return str(value) if type(value).__module__ in ("torch", "torch.torch_version") else type(value).__qualname__


def answer(program: str, names: dict[str, Any]) -> dict[str, Any]:
    """Runs a program: {"value": ...} or {"error": type, "message": ...}, and {"warnings": [...]} if it warned."""
    parsed = ast.parse(program)
    last = parsed.body.pop() if isinstance(parsed.body[-1], ast.Expr) else None
    said: dict[str, Any] = {}
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        try:
            exec(compile(parsed, "<program>", "exec"), names)
            value = eval(compile(ast.Expression(last.value), "<program>", "eval"), names) if last else None
            said["value"] = plain(value)
        except Exception as error:
            said["error"], said["message"] = type(error).__qualname__, str(error).split("\nException raised from")[0]
    if heard:
        texts = [(w.category.__qualname__, str(w.message).partition(" (Triggered internally")[0]) for w in heard]
        said["warnings"] = [f"{category}: {text}" for category, text in texts]
    return said


def in_a_child(function: Callable[[], Any]) -> Any:
    """Calls a function in a forked process, and returns its result, which is sent as JSON."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        with os.fdopen(writer, "w") as file:
            json.dump(function(), file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        result = json.load(file)
    os.wait()
    return result


def ask(area: str, device: str, first: int, last: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs the programs of an area from the index `first` to before `last`, and yields each with its answer.

    Each program of a SEPARATE area runs in a child of this process, which has not used the device. After a program of
    another area, raises what the device reports, because such a device would give wrong answers to all later programs.
    """
    import torch
    import torch.nn.functional as F

    module = import_module(f"cuda_answers.{area}")
    for program in module.PROGRAMS[first:last]:
        if device == "cuda" or "torch.cuda" not in program:
            names = dict(vars(module), torch=torch, F=F, DEVICE=device, module=torch.get_device_module(device))
            if area in SEPARATE:
                yield program, in_a_child(lambda p=program, n=names: answer(p, n))
            else:
                yield program, answer(program, names)
                torch.accelerator.synchronize()
