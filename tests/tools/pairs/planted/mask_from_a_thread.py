"""A thread makes the next mask on its own stream, and the main thread multiplies with it at once."""

from concurrent.futures import ThreadPoolExecutor

import torch

device = torch.accelerator.current_accelerator()
masks = torch.Stream(device=device)


def make(seed):
    masks.wait_stream(torch.accelerator.current_stream())  # the memory of the last mask is used again
    with masks:
        mask = (torch.arange(1 << 12, device=device) % seed == 0).float()  # BUG
    # REPAIR: masks.synchronize()
    return mask


total = torch.zeros(1 << 12, device=device)
with ThreadPoolExecutor(1) as pool:
    for seed in (2, 3, 5):
        total += pool.submit(make, seed).result()  # BUG
print("total", total.sum().item())
