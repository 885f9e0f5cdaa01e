"""What one case computes, and how its result on the device is held against the CPU's. Runs inside a worker.

A case is (suite, name, dtype, variant). A suite lists named entries; a variant is a function of an entry and a sample
that is run once with the sample on the CPU and once with it on the device; whatever it returns must be the same.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from comparison import comparable, identical, leaves, metadata_difference, place
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._pytree import tree_flatten

# Severity order: the worst sample decides a case.
BITWISE, TOLERANCE, DIFFERENT, ERROR = "bitwise", "tolerance", "different", "error"
SEVERITY = (BITWISE, TOLERANCE, DIFFERENT, ERROR)

Sample = tuple[Any, tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Variant:
    """One way to exercise an operator."""

    help: str
    applies: Callable[[OpInfo, torch.dtype], bool]
    samples: Callable[[OpInfo, torch.dtype], Iterator[Any]]
    run: Callable[[OpInfo, Any], Any]


# ---- Variants of operators ---------------------------------------------------------------------------------------


def _call(function: Callable[..., Any], sample: Any) -> Any:
    return function(sample.input, *sample.args, **sample.kwargs)


def _arguments(sample: Any) -> Sample:
    return (sample.input, sample.args, sample.kwargs)


def _plain_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    return iter(op.sample_inputs("cpu", dtype))


def _grad_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    return iter(op.sample_inputs("cpu", dtype, requires_grad=True))


def _forward(op: OpInfo, sample: Any) -> Any:
    # The arguments are part of the result: running statistics are updated in place, views alias their base.
    return _call(op, sample), _arguments(sample)


def _cotangent(output: torch.Tensor, seed: int) -> torch.Tensor:
    if output.layout is not torch.strided:
        return torch.ones_like(output.detach())
    generator = torch.Generator().manual_seed(seed)
    # Drawn in float64, so that every dtype gets the same direction.
    values = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return values.to(output.dtype).to(output.device)


def _differentiate(outputs: list[Any], inputs: list[Any], create_graph: bool) -> list[Any]:
    outputs = [t for t in outputs if isinstance(t, torch.Tensor) and t.requires_grad]
    inputs = [t for t in inputs if isinstance(t, torch.Tensor) and t.requires_grad]
    if not outputs or not inputs:
        return []
    cotangents = [_cotangent(t, seed).requires_grad_(create_graph) for seed, t in enumerate(outputs)]
    grads = torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True, create_graph=create_graph)
    return list(grads)


def _backward(op: OpInfo, sample: Any) -> Any:
    # The outputs too: with a gradient required, some operators take another kernel than without.
    outputs = leaves(sample.output_process_fn_grad(_call(op, sample)))
    return outputs, _differentiate(outputs, leaves(_arguments(sample)), create_graph=False)


def _double_backward(op: OpInfo, sample: Any) -> Any:
    inputs = leaves(_arguments(sample))
    grads = _differentiate(leaves(sample.output_process_fn_grad(_call(op, sample))), inputs, create_graph=True)
    return _differentiate(grads, inputs, create_graph=False)


def _has_backward(op: OpInfo, dtype: torch.dtype) -> bool:
    return op.supports_autograd and dtype in op.supported_backward_dtypes("cpu")


def _noncontiguous_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    for sample in op.sample_inputs("cpu", dtype):
        yield sample.noncontiguous()


def _inplace_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    return (s for s in op.sample_inputs("cpu", dtype) if not s.broadcasts_input)


def _inplace(op: OpInfo, sample: Any) -> Any:
    return _call(op.get_inplace(), sample), _arguments(sample)


def _out(op: OpInfo, sample: Any) -> Any:
    """Three times: into tensors of the right shape, into strided ones, and into empty ones, which are resized."""
    expected = _call(op, sample)
    outputs = [t for t in leaves(expected) if isinstance(t, torch.Tensor)]
    results = []
    for make in (
        torch.zeros_like,
        lambda t: t.new_zeros((*t.shape, 2))[..., 0],
        lambda t: t.new_empty(0),
    ):
        out = [make(t) for t in outputs]
        given = out[0] if isinstance(expected, torch.Tensor) else type(expected)(out)
        op(sample.input, *sample.args, **sample.kwargs, out=given)
        results.append(out)
    return results


def _error_samples(op: OpInfo, dtype: torch.dtype) -> Iterator[Any]:
    return (error.sample_input for error in op.error_inputs("cpu"))


def _error(op: OpInfo, sample: Any) -> str:
    try:
        _call(op, sample)
    except Exception as error:
        return type(error).__name__
    return "no error"


def _always(op: OpInfo, dtype: torch.dtype) -> bool:
    return True


VARIANTS = {
    "forward": Variant("the operator; its arguments afterwards", _always, _plain_samples, _forward),
    "backward": Variant("outputs and gradients", _has_backward, _grad_samples, _backward),
    "double_backward": Variant(
        "gradients of gradients", lambda op, dtype: op.supports_gradgrad and _has_backward(op, dtype), _grad_samples,
        _double_backward,
    ),
    "noncontiguous": Variant("the operator on strided inputs", _always, _noncontiguous_samples, _forward),
    "inplace": Variant(
        "the in-place form", lambda op, dtype: op.get_inplace() is not None, _inplace_samples, _inplace
    ),
    "out": Variant("out=, of the right shape, strided, empty", lambda op, dtype: op.supports_out, _plain_samples, _out),
    "error": Variant(
        "wrong arguments: the type of the exception",
        lambda op, dtype: op.error_inputs_func is not None and dtype is torch.float32,
        _error_samples,
        _error,
    ),
}  # fmt: skip


# ---- Selection ---------------------------------------------------------------------------------------------------

OPERATORS: dict[str, OpInfo] = {op.full_name: op for op in op_db}


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def list_cases(dtypes: list[str], variants: list[str]) -> list[dict[str, str]]:
    """Every case of the given dtypes, applicable or not: a case that does not apply is counted as skipped with its
    reason, never left out. "default" is float32, int64, or the first dtype that an operator has; "all" is every
    dtype that the CPU supports."""
    cases = []
    for name, op in OPERATORS.items():
        supported = sorted(map(dtype_name, op.supported_dtypes("cpu")))
        default = next((d for d in ("float32", "int64") if d in supported), supported[0] if supported else "float32")
        words = {"all": supported, "default": [default]}
        for dtype in sorted({dtype for word in dtypes for dtype in words.get(word, [word])}):
            for variant in variants:
                cases.append({"suite": "op", "name": name, "dtype": dtype, "variant": variant})
    return cases


# ---- Running one case --------------------------------------------------------------------------------------------


def _aliases(tensors: list[torch.Tensor]) -> list[int]:
    """For each tensor the position of the first one that shares its storage."""
    first: dict[int, int] = {}
    result = []
    for position, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel():
            result.append(first.setdefault(tensor.untyped_storage()._cdata, position))
    return result


def compare(actual: Any, expected: Any, device: str, values: bool) -> tuple[str, str]:
    """How a result agrees with the CPU's, and the first thing in which it does not. `values` False: metadata only."""
    actual_leaves, actual_spec = tree_flatten(actual)
    expected_leaves, expected_spec = tree_flatten(expected)
    if actual_spec != expected_spec:
        return DIFFERENT, f"the result is {actual_spec}, the CPU's {expected_spec}"
    status, detail = BITWISE, ""
    for a, e in zip(actual_leaves, expected_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            # A device in the arguments was replaced; everything else is plain data.
            if not (a == e or (a != a and e != e) or isinstance(e, (torch.device, torch.Generator))):
                return DIFFERENT, f"{a!r} is not the CPU's {e!r}"
            continue
        difference = metadata_difference(a, e, device)
        if difference is not None:
            return DIFFERENT, difference
        if not values:
            continue
        for x, y in zip(comparable(a), comparable(e), strict=True):
            if identical(x, y):
                continue
            try:
                torch.testing.assert_close(x, y, equal_nan=True)
            except AssertionError as error:
                return DIFFERENT, " ".join(str(error).split())
            status, detail = TOLERANCE, f"largest difference {(x - y).abs().max().item():.3g}"
    tensors = [[t for t in flat if isinstance(t, torch.Tensor)] for flat in (actual_leaves, expected_leaves)]
    if _aliases(tensors[0]) != _aliases(tensors[1]):
        return DIFFERENT, f"storages are shared as {_aliases(tensors[0])}, on the CPU as {_aliases(tensors[1])}"
    return status, detail


def _sentence(error: BaseException) -> str:
    text = str(error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run_case(case: dict[str, Any], device: str, verbose: bool = False) -> dict[str, Any]:
    """Runs every sample of a case on the CPU and on `device`.

    The result has a status (one of SEVERITY, or "skipped" with the reason as detail), the number of samples by status,
    and the first detail of the worst status.
    """
    op = OPERATORS[case["name"]]
    dtype = getattr(torch, case["dtype"])
    variant = VARIANTS[case["variant"]]
    if not op.supported_dtypes("cpu"):
        return {"status": "skipped", "detail": "the CPU supports no dtype"}
    if dtype not in op.supported_dtypes("cpu"):
        return {"status": "skipped", "detail": f"the CPU does not support {case['dtype']}"}
    if not variant.applies(op, dtype):
        return {"status": "skipped", "detail": f"has no {case['variant']}"}

    counts: dict[str, int] = {}
    worst, first_detail = "skipped", "no samples"
    with _quiet():
        torch.manual_seed(0)
        # All at once: _run_sample seeds again, and samples must not all start from one state.
        try:
            samples = list(variant.samples(op, dtype))
        except Exception as error:
            return {"status": "skipped", "detail": f"no samples: the CPU raises {_sentence(error)}"}
        for number, sample in enumerate(samples):
            status, detail = _run_sample(op, variant, sample, device, case.get("values", True), verbose)
            counts[status] = counts.get(status, 0) + 1
            if status == "skipped":
                first_detail = detail if first_detail == "no samples" else first_detail
            elif worst == "skipped" or SEVERITY.index(status) > SEVERITY.index(worst):
                worst, first_detail = status, f"sample {number}: {detail}" if detail else ""
    return {"status": worst, "detail": first_detail, "samples": counts}


def _run_sample(op: OpInfo, variant: Variant, sample: Any, device: str, values: bool, verbose: bool) -> tuple[str, str]:
    # A factory called without a device: only the default device can say where.
    placed = any(
        isinstance(leaf, (torch.Tensor, torch.device)) or (isinstance(leaf, str) and leaf == "cpu")
        for leaf in leaves(_arguments(sample))
    )

    def attempt(where: str) -> Any:
        moved = type(sample)(sample.input)
        moved.input, moved.args, moved.kwargs = place(_arguments(sample), where)
        moved.output_process_fn_grad = sample.output_process_fn_grad
        torch.manual_seed(1)
        with contextlib.nullcontext() if placed else torch.device(where):
            return variant.run(op, moved)

    try:
        expected = attempt("cpu")
    except Exception as error:
        return "skipped", f"the CPU raises {_sentence(error)}"
    try:
        torch.manual_seed(1)
        before = torch.get_rng_state()
        actual = attempt(device)
        if torch.device(device).type != "cpu" and not torch.equal(before, torch.get_rng_state()):
            return DIFFERENT, "the CPU's generator advanced"
        return compare(actual, expected, device, values)
    except Exception as error:
        if verbose:
            import traceback

            traceback.print_exc()
        return ERROR, _sentence(error)
