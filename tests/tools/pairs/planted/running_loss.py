"""The sum of the losses keeps the graph of every step."""

import torch
from torch import nn


def train(steps):
    torch.manual_seed(0)
    device = torch.accelerator.current_accelerator()
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 1)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    running = 0.0
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = model(torch.randn(32, 64, device=device)).abs().mean()  # BUG
        loss.backward()
        optimizer.step()
        running += loss  # BUG, not in the repair
        # REPAIR: running += loss.item()
    return float(running)


print(f"{train(8):.5f}")
