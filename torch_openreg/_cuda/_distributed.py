"""torch.distributed: under the name "nccl" there is this device's own backend, ``occl``.

torch.cuda.nccl has the version of the NCCL in PyTorch 2.13's own builds, because programs ask for it before they use a
feature of the backend. The functions of torch.cuda.nccl that call NCCL refuse.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch.distributed as dist

from torch_openreg._cuda._missing import refusal

_VERSION = (2, 29, 7)

SUPPLIED: dict[str, Any] = {
    "_nccl_version": lambda: _VERSION[0] << 32 | _VERSION[1] << 16 | _VERSION[2],
    "_nccl_version_suffix": lambda: b"",
}

REPLACED: tuple[tuple[str, str, Any, str], ...] = tuple(
    (
        "torch.cuda.nccl",
        name,
        refusal(
            f"torch.cuda.nccl.{name}() is not available: the simulated device has no NCCL. "
            'Use a process group of torch.distributed, whose backend "nccl" is the device\'s own.'
        ),
        "with _nccl_all_reduce in torch._C, is_available() would promise a library that is not there",
    )
    for name in ("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter", "unique_id")
)

if dist.is_available():
    from torch_openreg.distributed import ProcessGroupOCCL

    _NO_NCCL = "PyTorch's own is compiled out: torch/distributed/distributed_c10d.py looked for it when it was imported"
    REPLACED += (
        ("torch.distributed.distributed_c10d", "_NCCL_AVAILABLE", True, _NO_NCCL),
        ("torch.distributed.distributed_c10d", "ProcessGroupNCCL", ProcessGroupOCCL, _NO_NCCL),
        ("torch.distributed", "ProcessGroupNCCL", ProcessGroupOCCL, _NO_NCCL),
        # kProcessGroupNCCLDefaultTimeout in torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp
        ("torch.distributed.distributed_c10d", "default_pg_nccl_timeout", timedelta(minutes=10), _NO_NCCL),
    )
