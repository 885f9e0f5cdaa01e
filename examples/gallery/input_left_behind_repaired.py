"""input_left_behind.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
model = torch.nn.Linear(3, 3).to(device)
batch = torch.ones(2, 3)
model(batch.to(device))
