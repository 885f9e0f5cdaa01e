"""index_on_another_device.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type
logits = torch.zeros(2, 5, device=f"{device}:1")
label = torch.tensor([[1], [2]], device=logits.device)
logits.scatter_(1, label, 1.0)
