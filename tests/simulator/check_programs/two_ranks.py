"""A correct program of two ranks: for torchrun, and started alone it starts both."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing


def work(rank: int) -> None:
    device = torch.device(torch.accelerator.current_accelerator().type, rank)
    dist.init_process_group(dist.get_default_backend_for_device(device), rank=rank, world_size=2)
    value = torch.full((4,), float(rank + 1), device=device)
    dist.all_reduce(value)
    if rank == 0:
        print(value.tolist())
    dist.destroy_process_group()


if "RANK" in os.environ:
    work(int(os.environ["RANK"]))
else:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    torch.multiprocessing.start_processes(work, nprocs=2, start_method="fork")
