"""The mark of a test of this package's device under the name cuda (TORCH_OPENREG_AS=cuda)."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

AS_CUDA = pytest.mark.skipif(
    torch.version.hip is not None or not Path(__file__).parents[1].joinpath("cuda").is_dir(),
    reason="needs the name cuda, which belongs to real GPUs in a build of PyTorch with ROCm",
)
