"""A cache by the step number grows for ever."""

import functools

import torch

device = torch.accelerator.current_accelerator()


@functools.cache  # BUG, not in the repair
# REPAIR: @functools.lru_cache(maxsize=2)
def positions(length):
    return torch.arange(length, device=device, dtype=torch.float32)  # BUG


total = 0.0
for step in range(12):
    length = 1 << 12
    table = positions(length + step)
    total += table[:8].sum().item()
print(total)
