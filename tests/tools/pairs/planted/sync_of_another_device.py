"""The host waits for the wrong device before it reads the pinned copy."""

import torch

kind = torch.accelerator.current_accelerator().type
source = torch.full((1 << 12,), 3.0, device=f"{kind}:1").sqrt()
target = torch.empty(1 << 12, pin_memory=True)
target.copy_(source, non_blocking=True)  # BUG
torch.accelerator.synchronize(0)
# REPAIR: torch.accelerator.synchronize(1)
print("sum", target.numpy().sum())  # BUG
