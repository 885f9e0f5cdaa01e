"""examples/cpu_fallback: a fallback that copies to the CPU, for chosen operators."""

from __future__ import annotations

from pathlib import Path

import programs
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpu_fallback" / "fallback.cpp"
PROGRAM = """
import sys, torch
from torch.nn import functional as F
from torch.utils.cpp_extension import load

load("cpu_fallback", [sys.argv[1]], build_directory=sys.argv[2], is_python_module=False, extra_cflags=["-O0"])

x, grid = torch.rand(1, 1, 4, 4), torch.rand(1, 2, 2, 2)
expected = F.grid_sample(x, grid, align_corners=False)
found = F.grid_sample(x.to("openreg"), grid.to("openreg"), align_corners=False)
print(found.device, torch.equal(found.cpu(), expected))
with torch.profiler.profile() as profile:
    F.grid_sample(x.to("openreg"), grid.to("openreg"), align_corners=False)
print([event.name for event in profile.events()].count("aten::_to_cpu"))
try:
    torch.cdist(torch.rand(2, 3, device="openreg"), torch.rand(2, 3, device="openreg"))
except NotImplementedError as error:
    print(str(error).splitlines()[0])
"""


@pytest.mark.slow
def test_listed_operators_run_on_the_cpu_with_one_wait_and_refused_ones_raise(tmp_path: Path) -> None:
    result = programs.python(PROGRAM, EXAMPLE, tmp_path, status=0)
    assert result.stdout.splitlines() == [
        "openreg:0 True",
        "1",
        "The device has no kernel for 'aten::_cdist_forward', and no fallback.",
    ]
