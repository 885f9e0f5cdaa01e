"""A rank overwrites a buffer that an asynchronous send may still read.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
buffer = torch.full((1 << 10,), 1.0, device=device)
if rank == 0:
    work = dist.isend(buffer, 1)
    # REPAIR: work.wait()
    buffer.fill_(2.0)  # BUG
    work.wait()
else:
    dist.recv(buffer, 0)
    print("received", buffer.sum().item())
dist.destroy_process_group()
