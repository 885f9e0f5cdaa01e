"""How a case is run, and how its result on the device is compared with the CPU's. Runs inside a worker.

A case is an entry of a suite in one dtype and variant, see `torch_conformance.databases`. Its name is suite/entry/dtype/variant.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import importlib
import itertools
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from comparison import comparable, identical, leaves, metadata_difference, place
from torch.utils._pytree import tree_flatten, tree_map
from torch_conformance.databases import Sample, Suite, Variant

from .errors import sentence

# Severity order: the worst sample decides a case.
RAISES, BITWISE, TOLERANCE, PRECISION, DIFFERENT, ERROR = SEVERITY = (
    "raises", "bitwise", "tolerance", "precision", "different", "error",
)  # fmt: skip

# Suite -> its module, which is imported at its first use, because the import takes seconds.
MODULES = {
    "op": "operators",
    "module": "modules",
    "optimizer": "optimizers",
    "layout": "layouts",
    "jagged": "jagged",
}


@functools.cache
def suite_of(name: str) -> Suite:
    suite: Suite = importlib.import_module(f"sweep.{MODULES[name]}").SUITE
    return suite


# ---- Selection ---------------------------------------------------------------------------------------------------


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def case(suite: str, entry: str, dtype: str, variant: str) -> dict[str, str]:
    return {
        "name": f"{suite}/{entry}/{dtype}/{variant}",
        "suite": suite,
        "entry": entry,
        "dtype": dtype,
        "variant": variant,
    }


def list_cases(suites: list[str], dtypes: list[str], variants: list[str]) -> list[dict[str, str]]:
    """Every case of the given suites, dtypes and variants that an entry has on the CPU. "default" is float32, else
    int64, or the first dtype that an entry has; "all" is every dtype that the CPU supports."""
    cases = []
    for suite_name in suites:
        suite = suite_of(suite_name)
        for name, entry in suite.entries.items():
            supported = {dtype_name(dtype): dtype for dtype in sorted(suite.dtypes(entry), key=dtype_name)}
            default = [next((d for d in ("float32", "int64", *supported) if d in supported), "")]
            words = {"all": list(supported), "default": default}
            chosen = {dtype for word in dtypes for dtype in words.get(word, [word]) if dtype in supported}
            for dtype in sorted(chosen):
                for variant, how in suite.variants.items():
                    if (variants == ["all"] or variant in variants) and how.applies(entry, supported[dtype]):
                        cases.append(case(suite_name, name, dtype, variant))
    return cases


# ---- Running one case --------------------------------------------------------------------------------------------


def _aliases(tensors: list[torch.Tensor]) -> list[int]:
    """For each strided tensor with elements: the position of the first tensor that shares its storage."""
    first: dict[int, int] = {}
    result = []
    for position, tensor in enumerate(tensors):
        if tensor.layout is torch.strided and tensor.numel():
            result.append(first.setdefault(tensor.untyped_storage()._cdata, position))
    return result


def _outline(result: Any) -> str:
    return str(tree_map(lambda leaf: leaf if isinstance(leaf, str) else type(leaf).__name__, result))


def _as_precise(actual: torch.Tensor, expected: torch.Tensor, exact: torch.Tensor) -> bool:
    """Whether a result is about as near to the result in float64 as the CPU's result is. PyTorch compares compiled
    programs with eager ones in the same way (torch._dynamo.utils.same)."""

    def distance(tensor: torch.Tensor) -> torch.Tensor:
        return (tensor.double() - exact).square().mean().sqrt()

    rounding = torch.finfo(actual.dtype).eps * exact.square().mean().sqrt()
    return bool(distance(actual) <= 2 * distance(expected) + 5 * rounding)


def compare(actual: Any, expected: Any, device: str, lenient: Sequence[str] = (), exact: Any = None) -> tuple[str, str]:
    """How a result agrees with the CPU's, and the first difference. `lenient` names what is not compared: "values",
    "strides", "sharing" of memory, or results that are "empty" on the CPU. `exact` is the result in float64, with which
    both results are compared if they are not close to each other."""
    actual_leaves, actual_spec = tree_flatten(actual)
    expected_leaves, expected_spec = tree_flatten(expected)
    exact_leaves = expected_leaves if exact is None else leaves(exact)
    if actual_spec != expected_spec:
        return DIFFERENT, f"the result is {_outline(actual)}, the CPU's {_outline(expected)}"
    if "empty" in lenient:
        kept = [not (isinstance(e, torch.Tensor) and e.numel() == 0) for e in expected_leaves]
        actual_leaves, expected_leaves, exact_leaves = (
            [*itertools.compress(flat, kept)] for flat in (actual_leaves, expected_leaves, exact_leaves)
        )
    status, detail = BITWISE, ""
    for a, e, wide in zip(actual_leaves, expected_leaves, exact_leaves, strict=True):
        if not isinstance(e, torch.Tensor):
            # Sample.place has replaced devices and generators. Everything else is plain data, and must be equal.
            if not (a == e or (a != a and e != e) or isinstance(e, (torch.device, torch.Generator))):
                return DIFFERENT, f"{a!r} is not the CPU's {e!r}"
            continue
        difference = metadata_difference(a, e, device, strides="strides" not in lenient)
        if difference is not None:
            return DIFFERENT, difference
        if "values" in lenient:
            continue
        for x, y, z in zip(comparable(a), comparable(e), comparable(wide), strict=True):
            if identical(x, y):
                continue
            found = TOLERANCE
            try:
                torch.testing.assert_close(x, y, equal_nan=True)
            except AssertionError as error:
                if exact is None or not x.is_floating_point() or not _as_precise(x, y, z):
                    return DIFFERENT, " ".join(str(error).split())
                found = PRECISION
            if SEVERITY.index(found) > SEVERITY.index(status):
                status, detail = found, f"largest difference {(x - y).abs().max().item():.3g}"
    tensors = [[t for t in flat if isinstance(t, torch.Tensor)] for flat in (actual_leaves, expected_leaves)]
    if "sharing" not in lenient and _aliases(tensors[0]) != _aliases(tensors[1]):
        return DIFFERENT, f"storages are shared as {_aliases(tensors[0])}, on the CPU as {_aliases(tensors[1])}"
    return status, detail


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def run_case(case: dict[str, Any], device: str, verbose: bool = False) -> dict[str, Any]:
    """Runs every sample of a case on the CPU and on `device`.

    The answer has a result (one of SEVERITY, or "skipped" with the reason as detail), the number of samples by result,
    and the first detail of the worst result. `verbose` puts tracebacks into the detail.
    """
    suite = suite_of(case["suite"])
    entry = suite.entries[case["entry"]]
    dtype = getattr(torch, case["dtype"])
    variant = suite.variants[case["variant"]]
    counts: dict[str, int] = {}
    worst, first_detail = "skipped", "no samples"
    with _quiet():
        torch.manual_seed(0)
        # All samples are made first. _run_sample seeds the generators, so later samples would have the same numbers.
        try:
            samples = list(enumerate(variant.samples(entry, dtype)))
        except Exception as error:
            return {"result": "skipped", "detail": f"no samples: the CPU raises {sentence(error).splitlines()[0]}"}
        most = case.get("most") or len(samples)
        for number, sample in samples[:: -(-len(samples) // most)] if samples else []:
            status, detail = _run_sample(entry, variant, sample, device, case.get("lenient", ()), verbose)
            counts[status] = counts.get(status, 0) + 1
            if worst == "skipped" or SEVERITY.index(status) > SEVERITY.index(worst):
                worst, first_detail = status, f"sample {number}: {detail}" if detail else ""
    return {"result": worst, "detail": first_detail, "samples": counts}


def _in_float64(sample: Sample) -> Sample:
    """A copy in which every floating-point tensor, and the module if there is one, is in float64."""
    wide = sample.map(lambda t: t.double() if t.is_floating_point() else t)
    if isinstance(wide.input, torch.nn.Module):
        wide.input = copy.deepcopy(wide.input).double()
    return wide


def _run_sample(
    entry: Any, variant: Variant, sample: Sample, device: str, lenient: Sequence[str], verbose: bool
) -> tuple[str, str]:
    # Whether an argument decides where the call runs. A factory without a device runs on the default device.
    placed = any(
        isinstance(leaf, (torch.Tensor, torch.device, torch.nn.Module)) or (isinstance(leaf, str) and leaf == "cpu")
        for leaf in leaves(sample.arguments())
    )

    def attempt(where: str, sample: Sample = sample) -> Any:
        moved = sample.place(where, place)
        torch.manual_seed(1)
        with contextlib.nullcontext() if placed else torch.device(where):
            return variant.run(entry, moved)

    expected, expected_error, actual, actual_error, shown = None, None, None, None, "does not"
    try:
        expected = attempt("cpu")
    except Exception as error:
        expected_error = sentence(error)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    try:
        actual = attempt(device)
    except Exception as error:
        actual_error = sentence(error)
        shown = traceback.format_exc() if verbose else actual_error
    if torch.device(device).type != "cpu" and not torch.equal(before, torch.get_rng_state()):
        return DIFFERENT, "the CPU's generator advanced"
    if expected_error is None and actual_error is None:
        try:
            found = compare(actual, expected, device, lenient)
            if found[0] == DIFFERENT and "precision" in lenient:
                found = compare(actual, expected, device, lenient, attempt("cpu", _in_float64(sample)))
            return found
        except Exception as error:
            return DIFFERENT, f"cannot be compared: {sentence(error)}"
    if expected_error == actual_error:
        return RAISES, ""
    if expected_error is None:
        return ERROR, shown
    return DIFFERENT, f"the CPU raises {expected_error}; the device {shown}"
