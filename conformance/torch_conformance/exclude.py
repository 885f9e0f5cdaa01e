"""``python -m torch_conformance exclude kit.json --output FILE``: the tests of PyTorch that a backend is not ready for.

PyTorch's own tests of operators read a file of disabled tests, which the variable DISABLED_TESTS_FILE names. `exclusions`
makes this file from the results of the kit's sweep, so the rest of PyTorch's tests must pass. This module does not
import torch.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

# For each form of a case of the sweep, the tests of PyTorch that need it: the class, the name, and the dtypes that the
# test uses. An empty tuple stands for the dtype of the case, and None for a test without a dtype in its name.
_GRADIENTS = ("float64", "complex128")
TESTS: dict[str, tuple[tuple[str, str, tuple[str, ...] | None], ...]] = {
    "backward": (
        ("TestBwdGradients", "test_fn_grad", _GRADIENTS),
        ("TestCommon", "test_noncontiguous_samples", ()),
        ("TestCommon", "test_variant_consistency_eager", ()),
    ),
    "double_backward": (("TestBwdGradients", "test_fn_gradgrad", _GRADIENTS),),
    "noncontiguous": (("TestCommon", "test_noncontiguous_samples", ()),),
    "conj": (("TestMathBits", "test_conj_view", ()), ("TestMathBits", "test_neg_conj_view", ("complex128",))),
    "neg": (("TestMathBits", "test_neg_view", ()), ("TestMathBits", "test_neg_conj_view", ("complex128",))),
    "inplace": (("TestCommon", "test_variant_consistency_eager", ()),),
    "out": (("TestCommon", "test_out", ()), ("TestCommon", "test_out_warning", ())),
    "error": (("TestCommon", "test_errors", None),),
}


def main(arguments: list[str]) -> int:
    made = argparse.ArgumentParser(
        prog="python -m torch_conformance exclude",
        description="Writes the file of disabled tests for PyTorch's own tests of operators, from the results of a run "
        "with the sweep. A test is disabled if a case of the kit that does the same did not pass.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="a file that --json wrote")
    made.add_argument("--output", type=Path, default=Path(".pytorch-disabled-tests.json"), metavar="FILE")
    options = made.parse_args(arguments)
    try:
        found = exclusions(json.loads(options.file.read_text()))
    except (OSError, ValueError, KeyError, TypeError) as error:
        made.error(f"{options.file} is not a file that --json wrote: {error}")
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(
        f"{options.output}: {len(found)} names of tests. Run PyTorch's tests with DISABLED_TESTS_FILE={options.output}"
    )
    return 0


def exclusions(summary: dict[str, Any]) -> dict[str, list[Any]]:
    """The disabled tests in the form of PyTorch: a reason, and no platforms, for each test."""
    found: dict[str, list[Any]] = {}
    for check in summary["checks"]:
        kind, _, rest = check["name"].partition("operators/op/")
        if kind or check["result"] in ("passed", "noted"):
            continue
        entry, dtype, form = rest.split("/")
        # What has no forward has no other form.
        for needed in TESTS if form == "forward" else (form,):
            for name in _names(entry, dtype, needed, summary["device"]):
                found.setdefault(name, [f"{check['name']}: {check['result']}", []])
    return dict(sorted(found.items()))


def _names(entry: str, dtype: str, form: str, device: str) -> list[str]:
    names = []
    for group, test, dtypes in TESTS[form]:
        wanted = [""] if dtypes is None else [f"_{each}" for each in dtypes or (dtype,)]
        names += [f"{test}_{entry.replace('.', '_')}_{device}{each} (__main__.{group})" for each in wanted]
    return names
