"""After out of memory the batch is computed in two parts, and the second part is not used."""

import torch

device = torch.accelerator.current_accelerator()


def total(batch):
    return batch.to(device).square().sum()  # BUG


def robust_total(batch):
    try:
        return total(batch)  # BUG
    except torch.OutOfMemoryError:
        print("out of memory, computing in two parts")
        parts = batch.chunk(2)
        return total(parts[0]) + total(parts[0])  # BUG, not in the repair
        # REPAIR: return total(parts[0]) + total(parts[1])


batches = [torch.arange(8 * i, 8 * i + 8, dtype=torch.float32) for i in range(4)]
print(torch.stack([robust_total(batch) for batch in batches]).tolist())
