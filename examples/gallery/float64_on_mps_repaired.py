"""float64_on_mps.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
observation = torch.rand(2, dtype=torch.float64)
observation.float().to(device)
