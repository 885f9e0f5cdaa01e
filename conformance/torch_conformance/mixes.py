"""Operands on two devices: the device accepts and refuses what PyTorch's own meta functions accept and refuse.

The name of a case is ``operators/devices/OPERATOR``. The cases are the structured operators whose devices PyTorch's
generated wrapper does not check (``device_check: NoCheck`` in native_functions.yaml). The meta functions of these
operators check the devices, in the same way for every accelerator. Therefore a separate process without any backend
calls the operators with tensors of the meta device, which stands for the accelerator. That process leaves out
``torch._meta_registrations``, whose Python functions would replace the meta functions.

Run as a program, this module prints JSON: {operator: {places: PyTorch's error, or "" if PyTorch accepts the places}},
for the operators that the command line names, or for all.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import re
import subprocess
import sys
import types
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.modules["torch._meta_registrations"] = types.ModuleType("torch._meta_registrations")

import torch

PREFIX = "operators/devices/"

QUICK = (
    "add.Tensor",
    "add_.Tensor",
    "add.out",
    "eq.Tensor",
    "maximum",
    "lerp.Tensor",
    "addcdiv",
    "exp.out",
    "sum.IntList_out",
)

# The place of a tensor. D: on the device. S: on the device, 0-dim. C: on the CPU. s: on the CPU, 0-dim.
_PLACES = "DSCs"
_ON_ONE_DEVICE = str.maketrans("Cs", "DS")
# The values of required arguments that are no tensors, by the type in the schema.
_VALUES: dict[str, Any] = {"number": 1, "float": 1.0, "int": 0, "bool": False, "Optional[str]": "floor"}
_VALUES |= {"Optional[number]": 1, "Optional[int]": 0, "List[int]": [0], "Optional[List[int]]": [0]}
# A device may accept or refuse these CPU scalars: TensorIterator accepts them, and CUDA's kernel refuses them
# (ATen/native/cuda/PointwiseOpsKernel.cu, Lerp.cu).
_EITHER = re.compile(r"addcmul(_|\.out)? (s|.s)|lerp_?\.(Tensor|Scalar)(_out)? .s")


def unchecked_operators() -> list[str]:
    """The structured operators of native_functions.yaml whose devices PyTorch's generated wrapper does not check."""
    import torchgen

    functions = (Path(torchgen.__file__).parent / "packaged/ATen/native/native_functions.yaml").read_text()
    blocks = functions.split("\n- func: ")[1:]
    marks = ("\n  structured", "\n  device_check: NoCheck")
    return [block.split("(", 1)[0] for block in blocks if all(mark in block for mark in marks)]


def _is_tensor(argument: Any) -> bool:
    return str(argument.type) in ("Tensor", "Optional[Tensor]")


def _call(op: Any, places: Iterable[str], device: str, dtype: torch.dtype) -> str:
    """Calls ``op`` with tensors at ``places``. Returns the error, or the empty string."""
    positional, named, place = [], {}, iter(places)
    for argument in op._schema.arguments:
        if _is_tensor(argument):
            of_dtype = {"condition": torch.bool, "mask": torch.bool, "index": torch.int64}.get(argument.name, dtype)
            at = next(place)
            value: Any = torch.ones(() if at in "Ss" else 3, dtype=of_dtype, device=device if at in "DS" else "cpu")
            if argument.name == "index":
                value.zero_()
            elif of_dtype.is_floating_point:
                value.fill_(0.5)
        elif argument.has_default_value():
            continue
        else:
            value = _VALUES[str(argument.type)]
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    try:
        op(*positional, **named)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return ""


def outcomes(name: str, device: str) -> dict[str, str] | None:
    """The error, or the empty string, for each placement of the tensors.

    None if ``name`` has fewer than two tensors, or if no call of it works with all tensors on one device.
    """
    base, _, overload = name.partition(".")
    try:
        op = getattr(getattr(torch.ops.aten, base), overload or "default")
    except AttributeError:
        return None
    arguments = op._schema.arguments
    if any("Tensor" in str(a.type) and not _is_tensor(a) for a in arguments):
        return None
    if any(str(a.type) not in _VALUES for a in arguments if not _is_tensor(a) and not a.has_default_value()):
        return None
    count = sum(map(_is_tensor, arguments))
    dtypes = (torch.float32, torch.int64, torch.bool)
    dtype = next((each for each in dtypes if not _call(op, "D" * count, "cpu", each)), None)
    if count < 2 or dtype is None or _call(op, "D" * count, device, dtype):
        return None
    placements = map("".join, itertools.product(_PLACES, repeat=count))
    return {places: _call(op, places, device, dtype) for places in placements if set(places) & set("DS")}


def _says(answers: dict[str, str] | None) -> bool:
    """Whether a meta function gave the answers. Without one, PyTorch's errors are about the meta device itself."""
    return answers is not None and not any("Meta" in error or "meta tensor" in error for error in answers.values())


@functools.cache
def oracle(*operators: str) -> dict[str, dict[str, str]]:
    """PyTorch's answers for these operators, or for all. Starts a process and waits for it.

    Raises subprocess.CalledProcessError if the process fails.
    """
    result = subprocess.run(
        [sys.executable, "-m", "torch_conformance.mixes", *operators],
        env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=True,
    )
    answers: dict[str, dict[str, str]] = json.loads(result.stdout)
    return answers


def names(which: str) -> list[str]:
    """The names of all cases. If ``which`` is "quick": only those in QUICK. Starts a process and waits for it."""
    return [PREFIX + name for name in (oracle(*QUICK) if which == "quick" else oracle())]


def run(name: str, device: str) -> str:
    """Runs one case. Raises if the device accepts what PyTorch refuses, and notes what only the device refuses."""
    from .registry import NotOffered, note

    if torch.device(device).type == "cpu":
        raise NotOffered("the device is the CPU, so there is no second device to mix with the CPU")
    operator = name.removeprefix(PREFIX)
    expected = (oracle(*QUICK) if operator in QUICK else oracle())[operator]
    actual = outcomes(operator, device)
    if actual is None:
        raise NotOffered(f"{operator}: no call of it works on the device")
    for places, answer in expected.items():
        # If PyTorch also refuses the call with all tensors on one device, the refusal is not about devices.
        if not expected[places.translate(_ON_ONE_DEVICE)] and not _EITHER.match(f"{operator} {places}"):
            said = f"{operator} with tensors at {places} (D, S: on the device; C, s: on the CPU; S, s: 0-dim)"
            if not answer and actual[places]:
                note(f"stricter than CUDA: {said}: PyTorch accepts it; the device: {actual[places]}")
            assert not answer or actual[places], f"{said}: the device accepts it; PyTorch: {answer}"
    return f"{len(expected)} placements"


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    found = {name: outcomes(name, "meta") for name in sys.argv[1:] or unchecked_operators()}
    print(json.dumps({name: answers for name, answers in found.items() if _says(answers)}))
