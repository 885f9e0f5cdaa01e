"""examples/first_kernel: the file that a vendor copies for the first kernel."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest

PROGRAM = """
import sys
import torch
import torch_openreg
from torch.utils.cpp_extension import load
from torch_openreg._cli import ops

x, y = torch.tensor([[3.0, 5.0], [8.0, 0.0]]), torch.tensor([[4.0, 12.0], [15.0, 1.0]])
assert ops.route_of("aten::hypot")[0] != "native"
(libraries,) = torch_openreg.library_paths()
load(
    name="first_kernel",
    sources=[sys.argv[1]],
    extra_include_paths=torch_openreg.include_paths(),
    extra_cflags=["-std=c++20"],
    extra_ldflags=[f"-L{libraries}", "-ltorch_openreg", "-lopenreg"],
    build_directory=sys.argv[2],
    is_python_module=False,
)
assert ops.route_of("aten::hypot")[0] == "native"
a, b = x.to("openreg:1"), y.to("openreg:1")
for each in (torch.hypot(a, b), torch.hypot(a.t(), b.t()).t()):
    assert each.device == a.device
    print(each.tolist())
for wrong in (b.double(), b[0], b.to("openreg:0")):
    try:
        torch.hypot(a, wrong)
    except RuntimeError as error:
        print(error)
"""


@pytest.mark.slow
def test_the_copied_file_computes_an_operator_of_pytorch(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "first_kernel" / "Hypot.cpp"
    lines = programs.python(PROGRAM, example, tmp_path, status=0).stdout.splitlines()
    right = "[[5.0, 13.0], [17.0, 1.0]]"
    refused = "hypot of two float32 tensors of one shape only"
    assert lines[:2] == [right, right]
    assert lines[2:] == [refused, refused, "Expected all tensors to be on the same device"]
