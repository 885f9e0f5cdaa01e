"""What ``torch.distributed.tensor`` does not know of the device: how shards draw random numbers, and its attention.

Shards draw different numbers, and ranks keep equal generators. PyTorch's tracker (OffsetBasedRNGTracker) gives every shard a part of one sequence, by the offset of a Philox generator.
The generator of this device may be a Mersenne twister, which cannot skip numbers. So here each shard has its own seed. A
device whose generator has a seed and an offset, such as CUDA's, does not need this part of the file.

PyTorch has sharding rules for CUDA's operators of attention, and none for the operator that other backends supply.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._prims.rng_prims import get_device

from torch_openreg import _upstream, openreg
from torch_openreg._identity import device_type


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


@contextlib.contextmanager
def distribute_region(original: Any, self: Any, spec: Any, generator: torch.Generator | None = None) -> Iterator[None]:
    """Wraps OffsetBasedRNGTracker._distribute_region()."""
    from torch.distributed._local_tensor import enabled_local_tensor_mode

    is_ours = self._device.type == device_type and not enabled_local_tensor_mode()
    if not (is_ours and self.distribute_region_enabled):
        with original(self, spec, generator):
            yield
        return
    with _as_shard(self._compute_rng_offsets(spec)[0], generator):
        yield


def run_as_shard(start: int, end: int, op: Any, *args: Any, **kwargs: Any) -> Any:
    """The kernel of run_dtensor_rng_op for the device."""
    with _as_shard(start):
        return op(*args, **kwargs)


def select(original: Any, start: int, end: int, op: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps the function of run_dtensor_rng_op that chooses a device's kernel."""
    run = run_as_shard if get_device(args, kwargs) == device_type else original
    return run(start, end, op, *args, **kwargs)


def register(_: ModuleType) -> None:
    """Replaces the decisions of ``torch.distributed.tensor._random``."""
    _upstream.apply(_upstream.DTENSOR)


def register_attention(_: ModuleType) -> None:
    """Registers how the fused attention of a backend is sharded: by batch or by head, as PyTorch shards CUDA's."""
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor._dtensor_spec import DTensorSpec
    from torch.distributed.tensor.experimental import register_sharding

    attention = torch.ops.aten._scaled_dot_product_fused_attention_overrideable.default
    backward = torch.ops.aten._scaled_dot_product_fused_attention_overrideable_backward.default

    def of_mask(mask: Any, place: Any) -> list[Any]:
        if mask is None:
            return []
        return [place if place.is_shard() and mask.ndim == 4 and mask.shape[place.dim] > 1 else Replicate()]

    @register_sharding(attention)
    def shard(query: Any, key: Any, value: Any, attn_bias: Any = None, *rest: Any, **named: Any) -> Sequence[Any]:
        # After the output and the log-sum-exp come two tensors and two sizes that CUDA's varlen attention has, the state
        # of the generator (two tensors), and the debug mask.
        return [
            (
                [place, place, None, None, None, None, Replicate(), Replicate(), None],
                [place] * 3 + of_mask(attn_bias, place),
            )
            for place in (Replicate(), Shard(0), Shard(1))
        ]

    @register_sharding(backward)
    def shard_backward(
        grad: Any, query: Any, key: Any, value: Any, attn_bias: Any, mask: Any, *rest: Any, **named: Any
    ) -> Sequence[Any]:
        states = sum(isinstance(each, DTensorSpec) for each in rest) - 2  # without the output and the log-sum-exp
        return [
            ([place] * 3 + [None], [place] * 4 + of_mask(attn_bias, place) + [place] * 2 + [Replicate()] * states)
            for place in (Replicate(), Shard(0), Shard(1))
        ]
