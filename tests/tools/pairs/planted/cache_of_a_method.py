"""functools.cache on a method keeps every input, since tensors are hashed by identity."""

import functools

import torch
from torch import nn

device = torch.accelerator.current_accelerator()


class Positions(nn.Module):
    @functools.cache  # BUG, not in the repair  # noqa: B019
    def angles(self, positions):
        return positions[:, None] * torch.arange(16.0, device=positions.device)  # BUG

    def forward(self, x, positions):
        return x + self.angles(positions).sin()  # BUG


layer = Positions()
linear = nn.Linear(16, 1).to(device)
optimizer = torch.optim.SGD(linear.parameters(), lr=0.01)
for _ in range(8):
    positions = torch.arange(32.0, device=device)  # BUG
    loss = linear(layer(torch.ones(32, 16, device=device), positions)).mean()  # BUG
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
