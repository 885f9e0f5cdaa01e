"""cat_of_two_devices.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
boxes = torch.rand(3, 4, device=device)
new = torch.zeros(1, 4, device=boxes.device)
torch.cat([boxes, new])
