"""torch.distributed: under the name "nccl" there is this device's own backend, ``occl``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

REPLACED: tuple[tuple[str, str, Any, str], ...] = ()

if dist.is_available():
    from torch_openreg.distributed import ProcessGroupOCCL

    _NO_NCCL = "PyTorch's own is compiled out: torch/distributed/distributed_c10d.py looked for it when it was imported"
    REPLACED = (
        ("torch.distributed.distributed_c10d", "_NCCL_AVAILABLE", True, _NO_NCCL),
        ("torch.distributed.distributed_c10d", "ProcessGroupNCCL", ProcessGroupOCCL, _NO_NCCL),
        ("torch.distributed", "ProcessGroupNCCL", ProcessGroupOCCL, _NO_NCCL),
        # kProcessGroupNCCLDefaultTimeout in torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
        ("torch.distributed.distributed_c10d", "default_pg_nccl_timeout", timedelta(minutes=10), _NO_NCCL),
    )
