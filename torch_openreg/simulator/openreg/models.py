"""Device models: the accelerator that the simulated devices represent.

::

    torch.openreg.device_model("cuda-t4")  # before the first use of a device; or OPENREG_MODEL=cuda-t4
    torch.openreg.get_device_properties().name  # "Tesla T4"

A model gives the devices the properties and the memory of that accelerator, and sets how many devices there are. The
devices also lack what the accelerator lacks: dtypes, operators, and dtypes of single operators. They then raise the
errors that PyTorch raises on that accelerator. ``python -m torch_openreg models`` lists the models and compares them.
Each model is a file, which names the source of every value."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from torch_openreg import _upstream
from torch_openreg._identity import device_type, facts, identity
from torch_openreg.simulator import _bindings as _C
from torch_openreg.simulator import _models
from torch_openreg.simulator._upstream import WITHOUT_FLOAT64
from torch_openreg.simulator._variables import FORK_SERVER

__all__ = ["current", "device_model", "is_tf32_supported"]

_When = tuple[str, list[torch.dtype], list[str]]  # ModelRestrictions.h, Condition: the argument, its dtypes, its texts

_current: _models.Model | None = None
_restricting: _models.Model | None = None  # the model whose restrictions the operators have


def device_model(name: str | os.PathLike[str] | None) -> None:
    """Makes the devices of this process represent an accelerator.

    ``name`` is a model, such as ``"cuda-a100"``, or a file, such as ``"my.json"``. None removes the model, if it
    refuses nothing. OPENREG_DEVICE_MEMORY and OPENREG_DEVICE_COUNT replace the model's numbers. The memory (in bytes)
    is a limit, and is not reserved. Does not synchronise.

    Raises RuntimeError after the first use of a device. Raises RuntimeError for a second model if the first one refuses
    something, because the operators of the process keep their restrictions. Raises ValueError for an unknown name of
    a model or of an operator in its file; the message has the closest known name.
    """
    _choose(None if name is None else _models.find_for_this_torch(name))


def _choose(model: _models.Model | None, restrict: bool = True) -> None:
    global _current, _restricting
    if _restricting is not None and _restricting.restricted and model != _restricting:
        raise RuntimeError(
            f"This process has the device model {_restricting.name!r}, and the restrictions on its operators cannot be "
            "removed. Choose another model in another process."
        )
    _C._set_device_model(None if model is None else model.numbers)
    module = getattr(torch, device_type, None)  # None while the module is attached: OPENREG_MODEL
    if module is not None and hasattr(module, "_cached_device_count"):
        module._cached_device_count = None
    _C._set_nondeterminism_checks(
        model is None or model.nondeterminism_checks is None or model.nondeterminism_checks["value"]
    )
    _current = model
    if model is None:
        facts.pop("model", None)
    else:
        facts["model"] = {
            "name": model.name,
            "about": model.about,
            "properties": model.numbers,
            "texts": model.texts,
        }
    if restrict and model != _restricting:
        if model is not None:
            _restrict(model)
        _restricting = model


def current() -> str | None:
    """The name of the device model, or None. Does not start the device."""
    return None if _current is None else _current.name


def properties() -> dict[str, Any]:
    """The properties that the device model sets; empty without a model."""
    return {} if _current is None else _current.numbers


def rates() -> dict[str, float]:
    """What the device model's rates are, by the names in ``_models.RATES``; empty if it has none."""
    return {} if _current is None else {name: each["value"] for name, each in _current.rates.items()}


def is_tf32_supported() -> bool:
    """Whether convolutions and, if the program allows it, matrix products of float32 use TensorFloat-32.

    False without a device model: products then are in float32. As ``torch.cuda.is_tf32_supported``.
    """
    return _current is not None and _current.rounds_to_tf32


def _name_of(operator: str) -> str:
    return identity.operators.get(operator, operator)


def _restrict(model: _models.Model) -> None:
    if model.only_operators:
        _C._keep_only(model.only_operators["operators"], model.only_operators["message"])
    always: _When = ("", [], [])
    rows: dict[str, list[tuple[str, list[torch.dtype], _When, int, str]]] = defaultdict(list)
    for each in model.missing_operators:
        message = each["message"].replace("{commit}", torch.version.git_version or "")
        for operator in each["operators"]:
            rows[operator].append(("", [], always, 0, message.replace("{operator}", operator)))
    for each in model.restrictions:
        message = each.get("message") or f"\"{each['kernel']}\" not implemented for '{{dtype}}'"
        row = (
            each["argument"],
            _dtypes(each["dtypes"]),
            _when(each["when"]) if "when" in each else always,
            _models.ERRORS.index(each.get("error", _models.ERRORS[0])),
            message,
        )
        for operator in each["operators"]:
            rows[operator].append(row)
    for each in model.absent_dtypes:
        dtype, error = getattr(torch, each["dtype"]), _models.ERRORS.index(each["error"])
        _C._refuse_dtype(dtype, error, each["message"])
        # _refuse_dtype() checks new memory and the results of computing kernels, but not views.
        rows["aten::view.dtype"].append(("dtype", [dtype], always, error, each["message"]))
        if each["dtype"] == "float64":
            _upstream.apply(WITHOUT_FLOAT64)
    for operator, restrictions in rows.items():
        _C._refuse(_name_of(operator), restrictions)
    if model.rounds_to_tf32:
        for operator, arguments, convolution in _TF32:
            _C._round_to_tf32(_name_of(operator), list(arguments), convolution)


def print_in_float32(in_float64: Callable[[torch.Tensor], torch.Tensor], tensor: torch.Tensor) -> torch.Tensor:
    """Wraps torch._tensor_str.tensor_totype() from the choice of a model without float64 to the end of the process."""
    return tensor.float() if tensor.device.type == device_type else in_float64(tensor)


class _StaysFloat32(torch.Tensor):
    """A scale, of which GradScaler.unscale_() computes ``scale.double().reciprocal().float()``."""

    def double(self) -> torch.Tensor:
        return self.as_subclass(torch.Tensor)


def unscale_in_float32(in_float64: Callable[..., None], scaler: Any, optimizer: torch.optim.Optimizer) -> None:
    """Wraps GradScaler.unscale_() as print_in_float32() wraps its function."""
    scale = scaler._scale
    if scale is None or scale.device.type != device_type:
        return in_float64(scaler, optimizer)
    scaler._scale = scale.as_subclass(_StaysFloat32)
    try:
        return in_float64(scaler, optimizer)
    finally:
        scaler._scale = scale


# Operators that cuDNN or cuBLAS computes: the name, the arguments that are multiplied, whether it is a convolution.
_TF32 = (
    ("aten::convolution_overrideable", ("input", "weight"), True),
    ("aten::convolution_backward_overrideable", ("grad_output", "input", "weight"), True),
    ("aten::mm", ("self", "mat2"), False),
    ("aten::mm.out", ("self", "mat2"), False),
    ("aten::addmm", ("mat1", "mat2"), False),
    ("aten::addmm_", ("mat1", "mat2"), False),
    ("aten::addmm.out", ("mat1", "mat2"), False),
    ("aten::_addmm_activation", ("mat1", "mat2"), False),
    ("aten::_addmm_activation.out", ("mat1", "mat2"), False),
    ("aten::addbmm", ("batch1", "batch2"), False),
    ("aten::addbmm_", ("batch1", "batch2"), False),
    ("aten::addbmm.out", ("batch1", "batch2"), False),
    ("aten::bmm", ("self", "mat2"), False),
    ("aten::bmm.out", ("self", "mat2"), False),
    ("aten::baddbmm", ("batch1", "batch2"), False),
    ("aten::baddbmm_", ("batch1", "batch2"), False),
    ("aten::baddbmm.out", ("batch1", "batch2"), False),
)


def _dtypes(names: list[str]) -> list[torch.dtype]:
    return [getattr(torch, name) for name in names]


def _when(condition: dict[str, Any]) -> _When:
    values = condition["values"]
    texts = [value for value in values if value not in _models.DTYPES]
    return condition["argument"], _dtypes([value for value in values if value in _models.DTYPES]), texts


def _obey_environment(restrict: bool = True) -> None:
    """Chooses the model that OPENREG_MODEL names. Called at import. The pytest plugin calls it in each forked child.

    If OPENREG_MODEL is empty and no model is chosen, the device reads its other environment variables again.
    """
    if name := os.environ.get("OPENREG_MODEL", "").strip():
        _choose(_models.find_for_this_torch(name), restrict)
    elif _current is None:
        _C._set_device_model(None)


if "OPENREG_MODEL" in os.environ:
    # The pytest plugin's fork server (simulator.testing.processes) refuses nothing: a test's marker may choose another model in
    # its child, and restrictions cannot be removed.
    _obey_environment(restrict=FORK_SERVER not in os.environ)
