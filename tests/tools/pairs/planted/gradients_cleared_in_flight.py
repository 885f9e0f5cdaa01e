"""The gradients are cleared while an asynchronous collective still reads and writes them.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import datetime

import torch
import torch.distributed as dist

kind = torch.accelerator.current_accelerator().type
dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.accelerator.set_device_index(rank)
flat = torch.zeros(4096, device=kind)
total = torch.zeros(4096, device=kind)
for step in range(3):
    flat.fill_(rank + step + 1.0)  # BUG
    parts = [torch.zeros_like(flat) for _ in range(2)]
    work = dist.all_gather(parts, flat, async_op=True)  # BUG
    # REPAIR: work.wait()
    flat.zero_()  # BUG
    work.wait()
    total += parts[0] + 2 * parts[1]
print(total.sum().item())
dist.destroy_process_group()
