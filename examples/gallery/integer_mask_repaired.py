"""integer_mask.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
mask = torch.ones(2, 3, 3, dtype=torch.int32).to(device)
frames = torch.ones(2, 3, 4, dtype=torch.int32).to(device)
torch.bmm(mask.float(), frames.float())
