"""The ranks pad with empty rows before all_gather, and the mean counts them.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import datetime

import torch
import torch.distributed as dist

kind = torch.accelerator.current_accelerator().type
dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.accelerator.set_device_index(rank)
rows = 7 if rank == 0 else 5
padded = torch.empty(8, 3, device=kind)
padded[:rows] = rank + 1.0
# REPAIR: padded[rows:] = 0
everything = torch.zeros(16, 3, device=kind)
dist.all_gather_into_tensor(everything, padded)  # BUG
print(f"{everything.sum().item():.3f}")  # BUG
dist.destroy_process_group()
