"""non_blocking_to_the_cpu.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
x = torch.ones(1 << 16, device=device)
host = torch.empty(1 << 16, pin_memory=True).copy_(x, non_blocking=True)
torch.accelerator.synchronize()
assert host.sum() == 1 << 16
