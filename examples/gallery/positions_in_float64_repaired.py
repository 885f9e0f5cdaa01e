"""positions_in_float64.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
steps = torch.arange(0, 8, 2, dtype=torch.float32, device=device)
frequencies = 1.0 / 10000 ** (steps / 8)
