"""generator_of_the_device.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
generator = torch.Generator().manual_seed(0)
torch.randperm(4, generator=generator)
