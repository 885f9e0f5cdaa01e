"""integer_mm.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
chosen = torch.nn.functional.one_hot(torch.tensor([0, 2])).to(device)
table = torch.arange(6).reshape(3, 2).to(device)
torch.mm(chosen.float(), table.float())
