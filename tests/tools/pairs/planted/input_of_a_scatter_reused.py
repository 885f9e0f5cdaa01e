"""The input of an asynchronous reduce_scatter is cleared for the next layer before the work is done.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
gradient = torch.full((1 << 11,), rank + 1.0, device=device)
shard = torch.empty(1 << 10, device=device)
total = torch.zeros(1 << 10, device=device)
for layer in range(3):
    gradient.add_(layer)
    work = dist.reduce_scatter_tensor(shard, gradient, async_op=True)
    # REPAIR: work.wait()
    gradient.zero_()  # BUG
    work.wait()
    total += shard
if rank == 0:
    print("total", total.sum().item())
dist.destroy_process_group()
