"""The backend ``occl`` of ``torch.distributed``. It is for this device what NCCL is for CUDA.

Programs need not import this module: a process
group for the device finds the backend, as the default or as ``backend="occl"``. The module is for the backend's
options, such as
``init_process_group(..., pg_options=ProcessGroupOCCL.Options(is_high_priority_stream=True))``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from torch_openreg import _C, _upstream
from torch_openreg._identity import device_type

if TYPE_CHECKING:
    from torch_openreg._C import ProcessGroupOCCL as ProcessGroupOCCL
else:
    _C._init_distributed()
    ProcessGroupOCCL = _C.ProcessGroupOCCL

__all__ = ["ProcessGroupOCCL"]


def create(options: Any, pg_options: Any) -> ProcessGroupOCCL:
    """Makes the backend of a process group. Raises TypeError if ``pg_options`` are those of another backend.

    The loader registers a function with ``Backend.register_backend(extended_api=True)``; that function calls this one.
    """
    if pg_options is None:
        pg_options = ProcessGroupOCCL.Options()
    elif not isinstance(pg_options, ProcessGroupOCCL.Options):
        raise TypeError(f"Expected pg_options of type ProcessGroupOCCL.Options, but got {type(pg_options)}.")
    pg_options._timeout = options.timeout
    pg_options.global_ranks_in_group = options.global_ranks_in_group
    pg_options.group_name = options.group_id
    return ProcessGroupOCCL(options.store, options.group_rank, options.group_size, pg_options)


def _register_backend_as_default(
    original: Callable[..., None],
    group: dist.ProcessGroup,
    device: torch.device,
    backend_type: Any,
    backend: Any = None,
) -> None:
    """As PyTorch's method. Then makes this device's backend the default backend of a group that has no other device.

    If a program names neither a backend nor a device (``init_process_group()``), PyTorch 2.13 makes gloo the default,
    but the group has no gloo.
    """
    original(group, device, backend_type, backend)
    if backend_type == dist.ProcessGroup.BackendType.CUSTOM and group._device_types == [torch.device(device_type)]:
        group._set_default_backend(backend_type)


_upstream.apply(_upstream.DISTRIBUTED)
