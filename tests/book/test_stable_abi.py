"""examples/stable_abi: a kernel for the device that uses only PyTorch's stable ABI."""

from __future__ import annotations

import re
from pathlib import Path

import programs
import pytest
import torch

import torch_openreg

EXAMPLE = Path(__file__).parents[2] / "examples" / "stable_abi" / "cube.cpp"


@pytest.mark.slow
def test_the_kernel_runs_on_the_device_and_takes_no_cpp_function_from_pytorch(tmp_path: Path) -> None:
    from torch.utils.cpp_extension import load

    (libraries,) = torch_openreg.library_paths()
    load(
        name="stable_cube",
        sources=[str(EXAMPLE)],
        extra_include_paths=torch_openreg.include_paths(),
        extra_cflags=["-std=c++20", "-DTORCH_TARGET_VERSION=0x020d000000000000"],
        extra_ldflags=[f"-L{libraries}", "-lopenreg"],
        build_directory=str(tmp_path),
        is_python_module=False,
    )
    cube = torch.ops.stable_abi.cube
    x = torch.arange(6.0, device="openreg:1").reshape(2, 3)
    assert torch.openreg.current_device() == 0  # type: ignore[attr-defined]
    result = cube(x.t())
    assert result.device == x.device
    assert result.tolist() == [[0, 27], [1, 64], [8, 125]]
    with pytest.raises(RuntimeError, match="stable_abi::cube: expected a float32 tensor"):
        cube(x.double())

    needed = programs.run("nm", "-D", "-u", tmp_path / "stable_cube.so", status=0).stdout
    assert "torch_call_dispatcher" in needed and "torch_stream_native_handle" in needed
    assert re.findall(r"_ZNK?(?:2at|3c10|5torch)\w*", needed) == []
