"""Random operators of ``torch.distributed.tensor``: shards draw different numbers, ranks keep equal generators.

PyTorch's tracker (OffsetBasedRNGTracker) gives every shard a part of one sequence, by the offset of a Philox generator.
The generator of this device is a Mersenne twister, which cannot skip numbers. So here each shard has its own seed. A
device whose generator has a seed and an offset, such as CUDA's, does not need this file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch

from torch_openreg import openreg
from torch_openreg._environment import device_type


@contextlib.contextmanager
def _as_shard(start: int, given: torch.Generator | None = None) -> Iterator[None]:
    """In the block, the device's default generator gives the numbers of the shard that starts at the element ``start``.

    The shard's seed is computed from ``given``, or from the default generator. After the block, that generator has
    advanced by one number on all ranks. Waits for queued kernels that draw from that generator.
    """
    default = openreg.default_generators[openreg.current_device()]
    source = given or default
    drawn = torch.randint(2**62, (), generator=source, device=source.device).item()
    state = default.get_state()
    default.manual_seed(int(drawn) + start)
    try:
        yield
    finally:
        default.set_state(state)


def register(random: ModuleType) -> None:
    """Replaces the tracker in ``torch.distributed.tensor._random``."""

    class OffsetBasedRNGTracker(random.OffsetBasedRNGTracker):  # type: ignore[name-defined]
        __doc__ = random.OffsetBasedRNGTracker.__doc__

        @contextlib.contextmanager
        def _distribute_region(self, spec: Any, generator: torch.Generator | None = None) -> Iterator[None]:
            from torch.distributed._local_tensor import enabled_local_tensor_mode

            if not self.distribute_region_enabled:
                yield
                return
            is_ours = self._device.type == device_type and not enabled_local_tensor_mode()
            region = super()._distribute_region
            with _as_shard(self._compute_rng_offsets(spec)[0], generator) if is_ours else region(spec, generator):
                yield

    random.OffsetBasedRNGTracker = OffsetBasedRNGTracker  # type: ignore[attr-defined]
    # If a program gives no generator, PyTorch calls the operator run_dtensor_rng_op in place of _distribute_region():
    # up to 2.14 for CUDA only, since 2.15 for every accelerator.
    from torch._C import DispatchKey
    from torch._prims.rng_prims import get_device, run_dtensor_rng_op

    kernels = run_dtensor_rng_op.py_kernels
    of_other_devices = kernels[DispatchKey.BackendSelect]

    def run_as_shard(start: int, end: int, op: Any, *args: Any, **kwargs: Any) -> Any:
        with _as_shard(start):
            return op(*args, **kwargs)

    def select(start: int, end: int, op: Any, *args: Any, **kwargs: Any) -> Any:
        run = run_as_shard if get_device(args, kwargs) == device_type else of_other_devices
        return run(start, end, op, *args, **kwargs)

    # A call from a program goes to BackendSelect. A call after the choice of the backend goes to the device's key.
    kernels[DispatchKey.BackendSelect] = select
    kernels[getattr(DispatchKey, torch._C._dispatch_key_for_device(device_type))] = run_as_shard
