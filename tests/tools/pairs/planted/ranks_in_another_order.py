"""The ranks call two collectives in different orders.

Run with: -m torch.distributed.run --nproc-per-node 2 PROGRAM
"""

import torch
import torch.distributed as dist


def main():
    accelerator = torch.accelerator.current_accelerator().type
    dist.init_process_group(dist.get_default_backend_for_device(accelerator))
    rank = dist.get_rank()
    torch.accelerator.set_device_index(rank)
    x, y = torch.ones(64, device=accelerator), torch.ones(32, device=accelerator)
    order = (x, y) if rank == 0 else (y, x)  # BUG, not in the repair
    # REPAIR: order = (x, y)
    for tensor in order:
        dist.all_reduce(tensor)  # BUG
    if rank == 0:
        print(x.sum().item(), y.sum().item())  # BUG
    dist.destroy_process_group()  # BUG


main()
