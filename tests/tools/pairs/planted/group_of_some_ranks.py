"""Only the member of a group calls new_group(), so the ranks give the next group different names.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
loss = torch.full((), rank + 1.0, device=device)
members = [0]
# REPAIR: single = dist.new_group(members)
if rank in members:
    single = dist.new_group(members)  # BUG, not in the repair
    dist.all_reduce(loss, group=single)
everyone = dist.new_group([0, 1])  # BUG
dist.all_reduce(loss, group=everyone)  # BUG
if rank == 0:
    print("loss", loss.item())
dist.destroy_process_group()
