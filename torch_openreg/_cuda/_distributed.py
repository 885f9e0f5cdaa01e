"""torch.distributed: under the name "nccl" there is this device's own backend, ``occl``.

torch.cuda.nccl has the version of the NCCL in PyTorch 2.13's own builds, because programs ask for it before they use a
feature of the backend. The functions of torch.cuda.nccl that call NCCL raise NotImplementedError.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_openreg._cuda._missing import refusal

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Backend

_VERSION = (2, 29, 7)

SUPPLIED: dict[str, Any] = {
    "_nccl_version": lambda: _VERSION[0] << 32 | _VERSION[1] << 16 | _VERSION[2],
    "_nccl_version_suffix": lambda: b"",
    # With these attributes, PyTorch's torch.cuda.nccl.is_available() could be True, but _missing.py replaces it.
    **{
        f"_nccl_{name}": refusal(
            f"torch.cuda.nccl.{name}() is not available: the simulated device has no NCCL. "
            'Use a process group of torch.distributed, whose backend "nccl" is the device\'s own.'
        )
        for name in ("all_gather", "all_reduce", "broadcast", "init_rank", "reduce", "reduce_scatter", "unique_id")
    },
}

if dist.is_available():
    from torch_openreg.distributed import ProcessGroupOCCL

    AVAILABLE = True
    TIMEOUT = timedelta(
        minutes=10
    )  # kProcessGroupNCCLDefaultTimeout in torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp

    def register_nccl() -> None:
        """Since PyTorch 2.14 some backends are of classes of NCCL that are compiled out: registers ProcessGroupNCCL."""
        c10d: Any = dist.distributed_c10d
        if hasattr(c10d, "_register_builtin_nccl_as_legacy"):  # since PyTorch 2.15, where "nccl" is such a backend
            c10d._register_builtin_nccl_as_legacy()
        if hasattr(c10d, "_create_nccl2_process_group"):
            for name in ("nccl2", "nccl-lazy"):
                dist.Backend.register_backend(
                    name, c10d._create_nccl_process_group, extended_api=True, devices=["cuda"]
                )

    def register_backend(
        original: Callable[..., None],
        group: dist.ProcessGroup,
        device: torch.device,
        backend_type: Any,
        backend: Backend | None = None,
    ) -> None:
        original(group, device, backend_type, backend)
        if device.type == "cuda" and backend_type == dist.ProcessGroup.BackendType.GLOO and backend is not None:
            options = ProcessGroupOCCL.Options()
            options._timeout = backend.options._timeout
            options.global_ranks_in_group = backend.options.global_ranks_in_group
            options.group_name = backend.options.group_name
            store = dist.PrefixStore("cuda_of_gloo", group.get_group_store())
            beside = ProcessGroupOCCL(store, backend.rank(), backend.size(), options)
            original(group, device, dist.ProcessGroup.BackendType.CUSTOM, beside)

    def check_comm_hook(
        original: Callable[..., None], model: torch.nn.parallel.DistributedDataParallel, hook: Any
    ) -> None:
        checked: Callable[..., Any] = hook
        if getattr(hook, "__name__", "").startswith("bf16_compress"):

            @functools.wraps(hook)
            def checked(*arguments: Any) -> Any:
                return hook(*arguments)

            checked.__name__ = "hook"
        original(model, checked)
