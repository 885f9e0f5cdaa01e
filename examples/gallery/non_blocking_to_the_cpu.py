"""A copy to the CPU that nobody waits for: `to("cpu", non_blocking=True)` returns before the data is there.

Seen in https://github.com/pytorch/pytorch/issues/86264
Says: race: aten::sum reads what aten::copy_ may not have written yet: the host does not wait for the default stream of
openreg:0.
Run with: OPENREG_SANITIZER=race
"""

import torch

device = torch.accelerator.current_accelerator().type
x = torch.ones(1 << 16, device=device)
host = torch.empty(1 << 16, pin_memory=True).copy_(x, non_blocking=True)
assert host.sum() == 1 << 16
