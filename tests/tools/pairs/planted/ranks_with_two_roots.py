"""Each rank believes that it is the source of the broadcast.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import datetime

import torch
import torch.distributed as dist

kind = torch.accelerator.current_accelerator().type
dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.accelerator.set_device_index(rank)
weights = torch.full((16,), rank + 1.0, device=kind)
root = rank  # BUG, not in the repair
# REPAIR: root = 0
dist.broadcast(weights, src=root)  # BUG
print(weights.sum().item())
dist.destroy_process_group()
