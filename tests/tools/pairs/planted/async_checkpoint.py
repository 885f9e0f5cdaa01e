"""A thread writes a checkpoint from pinned memory before the copies have ended."""

import threading

import torch
from torch import nn


def snapshot(module):
    return {
        name: torch.empty(value.shape, pin_memory=True).copy_(value, non_blocking=True)  # BUG
        for name, value in module.state_dict().items()
    }


device = torch.accelerator.current_accelerator()
torch.manual_seed(3)
net = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.linspace(0, 1, 128, device=device).view(4, 32)
writer = None
for epoch in range(2):
    optimizer.zero_grad()
    net(x).pow(2).mean().backward()
    optimizer.step()
    state = snapshot(net)
    # REPAIR: torch.accelerator.synchronize()
    writer = threading.Thread(target=torch.save, args=(state, f"epoch{epoch}.pt"))  # BUG
    writer.start()  # BUG
    writer.join()  # BUG
print(torch.load("epoch1.pt")["0.weight"].sum().item())
