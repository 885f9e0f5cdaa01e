"""The last rank has a shorter batch, and all_gather needs equal ones.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
size = 8 - 3 * rank
# REPAIR: size = 8
batch = torch.full((size,), rank + 1.0, device=device)
gathered = torch.zeros(2 * size, device=device)
dist.all_gather_into_tensor(gathered, batch)  # BUG
if rank == 0:
    print("sum", gathered.sum().item())
dist.destroy_process_group()
