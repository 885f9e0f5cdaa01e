"""A forward hook collects the activations of every batch."""

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return F.gelu(self.inner(x))  # BUG


activations = {}


def keep(name):
    def hook(module, inputs, output):
        activations.setdefault(name, []).append(output.detach())  # BUG, not in the repair
        # REPAIR: activations[name] = output.detach()

    return hook


torch.manual_seed(0)
device = torch.accelerator.current_accelerator()
model = nn.Sequential(Block(128), Block(128)).to(device)
for name, module in model.named_children():
    module.register_forward_hook(keep(name))
with torch.no_grad():
    for _ in range(10):
        batch = torch.randn(16, 128).to(device)
        score = model(batch).mean().item()
print(round(score, 5))
