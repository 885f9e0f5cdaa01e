"""A stage receives the next micro-batch into the buffer that its compute stream still reads.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import os

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
device = torch.device(torch.accelerator.current_accelerator().type, rank)
torch.accelerator.set_device_index(rank)
dist.init_process_group(dist.get_default_backend_for_device(device))
buffer = torch.zeros(1 << 12, device=device)
if rank == 0:
    for i in range(4):
        dist.send(torch.full((1 << 12,), float(i), device=device), 1)
else:
    compute = torch.Stream(device=device)
    total = torch.zeros(1 << 12, device=device)
    compute.wait_stream(torch.accelerator.current_stream())
    for _ in range(4):
        # REPAIR: torch.accelerator.current_stream().wait_stream(compute)
        dist.recv(buffer, 0)  # BUG
        compute.wait_stream(torch.accelerator.current_stream())
        with compute:
            total += buffer.sqrt()  # BUG
    torch.accelerator.current_stream().wait_stream(compute)
    print("total", total.sum().item())
dist.destroy_process_group()
