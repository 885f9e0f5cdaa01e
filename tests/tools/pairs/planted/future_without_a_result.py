"""Tasks of a pool write into a tensor, and nobody asks their futures."""

from concurrent.futures import ThreadPoolExecutor, wait

import torch

device = torch.accelerator.current_accelerator()
sums = [0.0] * 4


def task(number):
    sums[number] = torch.full((64,), number + 1.0, device=device).cumsum(0)[-1].item()  # BUG


with ThreadPoolExecutor(1) as pool:
    futures = [pool.submit(task, number) for number in range(4)]  # BUG
    wait(futures)  # BUG
    # REPAIR: [future.result() for future in futures]
print(sums)
