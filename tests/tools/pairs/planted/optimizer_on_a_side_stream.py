"""The optimizer runs on a side stream while the next forward pass already reads the parameters."""

import torch
from torch import nn, optim

torch.manual_seed(1)
accelerator = torch.accelerator.current_accelerator()
layer = nn.Linear(64, 64, bias=False, device=accelerator)
sgd = optim.SGD(layer.parameters(), lr=1e-2)
updates = torch.Stream(device=accelerator)
data = torch.ones(4, 64, device=accelerator)
for _ in range(3):
    loss = layer(data).square().mean()  # BUG
    loss.backward()
    updates.wait_stream(torch.accelerator.current_stream())
    with updates:
        sgd.step()
    # REPAIR: torch.accelerator.current_stream().wait_stream(updates)
    layer.weight.grad = None
updates.synchronize()
print(round(layer(data).square().mean().item(), 6))
