"""integer_bmm.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
a = torch.randint(-6, 8, [3, 2, 2]).to(device)
b = torch.randint(-6, 8, [3, 2, 2]).to(device)
torch.matmul(a.float(), b.float())
