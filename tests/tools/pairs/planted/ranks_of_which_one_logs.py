"""Only rank 0 reduces its loss, for a log.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import datetime

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

kind = torch.accelerator.current_accelerator().type
dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.accelerator.set_device_index(rank)
torch.manual_seed(0)
model = DistributedDataParallel(nn.Linear(8, 1).to(kind))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = model(torch.full((4, 8), rank + 1.0, device=kind)).mean()  # BUG
    loss.backward()  # BUG
    optimizer.step()
    optimizer.zero_grad()
    mean = loss.detach().clone()
    # REPAIR: dist.all_reduce(mean)
    if rank == 0:
        dist.all_reduce(mean)  # BUG, not in the repair
        print(f"{mean.item():.4f}")  # BUG
dist.destroy_process_group()  # BUG
