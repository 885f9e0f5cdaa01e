"""The fallback to the CPU moves the inputs, and leaves the model on the device."""

import torch
from torch import nn


class Robust(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(32, 32)

    def forward(self, x):
        try:
            return self.body(x).relu()
        except RuntimeError:
            print("device failed, falling back to the CPU")
            # REPAIR: self.body.cpu()
            return self.body(x.cpu()).relu().to(x.device)  # BUG


torch.manual_seed(0)
device = torch.accelerator.current_accelerator().type
net = Robust().to(device)
with torch.no_grad():
    print(round(net(torch.ones(2, 32, device=device)).sum().item(), 3))
