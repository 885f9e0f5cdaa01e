"""The result of an asynchronous collective is read before wait().

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
gradient = torch.full((1 << 10,), rank + 1.0, device=device)
work = dist.all_reduce(gradient, async_op=True)
# REPAIR: work.wait()
norm = gradient.norm()  # BUG
work.wait()
if rank == 0:
    print(norm.item())
dist.destroy_process_group()
