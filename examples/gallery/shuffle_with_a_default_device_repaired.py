"""shuffle_with_a_default_device.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
torch.set_default_device(device)
loader = torch.utils.data.DataLoader(range(4), shuffle=True, generator=torch.Generator(device))
print(list(loader))
