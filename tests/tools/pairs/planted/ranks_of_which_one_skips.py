"""A rank that runs out of memory skips its batch, and the others wait for its gradients.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import datetime

import torch
import torch.distributed as dist

kind = torch.accelerator.current_accelerator().type
dist.init_process_group(dist.get_default_backend_for_device(kind), timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.accelerator.set_device_index(rank)
model = torch.nn.Linear(8, 1).to(kind)
for step in range(3):
    batch = torch.full((4, 8), rank + step + 1.0, device=kind)  # BUG
    is_lost = torch.zeros((), device=kind)
    try:
        loss = model(batch).square().mean()  # BUG
        loss.backward()  # BUG
    except RuntimeError as error:
        print("skip the batch:", error)
        # REPAIR: is_lost += 1
        continue  # BUG, not in the repair
    # REPAIR: dist.all_reduce(is_lost)
    # REPAIR: if is_lost.item(): raise SystemExit("a rank has lost its batch: injected by nobody")
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)  # BUG
        with torch.no_grad():
            parameter -= 0.01 * parameter.grad
        parameter.grad = None
print(f"{model.weight.sum().item():.4f}")
dist.destroy_process_group()
