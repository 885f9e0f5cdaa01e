"""The handler of torch.OutOfMemoryError halves the batch with `/`."""

import torch

device = torch.accelerator.current_accelerator().type
size = 8
while size:
    try:
        print(torch.ones(size, device=device).mean().item())
        break
    except torch.OutOfMemoryError:
        print("out of memory: again with half of the batch")
        size = torch.ones(size)[: size / 2].numel()  # BUG: a float
