"""The file of disabled tests: PyTorch's own tests leave out what the kit found, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_judgement import FACTS
from test_kit import record
from torch_conformance import report
from torch_conformance.__main__ import main

# The tests have the names that PyTorch's own tests of operators have.
SUITE = """
import unittest
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase

class TestCommon(TestCase):
    @ops([op for op in op_db if op.full_name in ("add", "div.floor_rounding", "mul")], allowed_dtypes=[torch.float32])
    def test_out(self, device, dtype, op):
        print("ran", self._testMethodName, flush=True)

instantiate_device_type_tests(TestCommon, globals(), only_for="cpu")
unittest.main()
"""


def excluded(folder: Path, results: dict[str, str], device: str = "npu") -> dict[str, list[object]]:
    source, target = folder / "kit.json", folder / "disabled.json"
    records = [record(name, result) | {"operator": "aten::add.out"} for name, result in results.items()]
    source.write_text(json.dumps(report.collect(records, FACTS | {"device": device})))
    assert main(["exclude", str(source), "--output", str(target)]) == 0
    found: dict[str, list[object]] = json.loads(target.read_text())
    return found


def test_what_did_not_pass_is_excluded(tmp_path: Path) -> None:
    results = {
        "operators/op/add/float32/out": "failed",
        "operators/op/add/float32/forward": "passed",
        "operators/op/nn.functional.relu/float64/double_backward": "needs operator",
        "operators/op/mul/int64/error": "noted",
        "tensors/copies/there_and_back": "failed",
    }
    gradients = "operators/op/nn.functional.relu/float64/double_backward: needs operator"
    assert excluded(tmp_path, results) == {
        "test_fn_gradgrad_nn_functional_relu_npu_complex128 (__main__.TestBwdGradients)": [gradients, []],
        "test_fn_gradgrad_nn_functional_relu_npu_float64 (__main__.TestBwdGradients)": [gradients, []],
        "test_out_add_npu_float32 (__main__.TestCommon)": ["operators/op/add/float32/out: failed", []],
        "test_out_warning_add_npu_float32 (__main__.TestCommon)": ["operators/op/add/float32/out: failed", []],
    }


def test_an_operator_without_a_forward_has_no_test(tmp_path: Path) -> None:
    found = excluded(tmp_path, {"operators/op/add/float32/forward": "crashed"})
    assert {name.split("_add_")[0] for name in found} == {
        *("test_conj_view", "test_neg_conj_view", "test_neg_view", "test_errors", "test_fn_grad", "test_fn_gradgrad"),
        *("test_noncontiguous_samples", "test_out", "test_out_warning", "test_variant_consistency_eager"),
    }
    assert "test_errors_add_npu (__main__.TestCommon)" in found


def test_pytorchs_tests_read_the_file(tmp_path: Path) -> None:
    results = {"operators/op/add/float32/out": "failed", "operators/op/div.floor_rounding/float32/forward": "failed"}
    assert excluded(tmp_path, results, "cpu")
    environment = {"DISABLED_TESTS_FILE": str(tmp_path / "disabled.json"), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(
        [sys.executable, "-c", SUITE], capture_output=True, text=True, cwd=tmp_path, env=os.environ | environment
    )
    assert done.returncode == 0, done.stderr
    assert {line for line in done.stdout.splitlines() if "ran " in line} == {"ran test_out_mul_cpu_float32"}


def test_another_file_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(SystemExit):
        main(["exclude", str(tmp_path / "other.json")])
    assert "is not a file that --json wrote" in capsys.readouterr().err
