"""Offloading that reads too early: a cache is copied to pinned memory without blocking, and read at once.

Seen in https://github.com/sgl-project/sglang/pull/16493
Says: race: aten::eq reads what aten::copy_ may not have written yet: the host does not wait for the default stream of
openreg:0.
Run with: OPENREG_SANITIZER=race
"""

import torch

device = torch.accelerator.current_accelerator().type
cache = torch.full((1 << 16,), 7.0, device=device)
store = torch.empty(1 << 16, pin_memory=True)
store.copy_(cache, non_blocking=True)
assert bool((store == 7).all())
