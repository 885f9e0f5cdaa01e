"""NumPy reads pinned memory through DLPack before the copy to it has ended."""

import numpy as np
import torch

device = torch.accelerator.current_accelerator()
host = torch.zeros(4096, pin_memory=True)
array = np.from_dlpack(host)
for step in range(3):
    host.copy_(torch.full((4096,), step + 1.0, device=device), non_blocking=True)  # BUG
    # REPAIR: torch.accelerator.synchronize()
    print(array.sum())  # BUG
