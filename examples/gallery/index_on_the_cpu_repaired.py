"""index_on_the_cpu.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
table = torch.nn.Embedding(10, 4).to(device)
ids = torch.tensor([1, 2, 3])
table(ids.to(device))
