"""A constant matrix that nobody moves: `mm` of a tensor of the device and a constant of the CPU.

Seen in https://github.com/rotem-shalev/Ham2Pose/pull/6
Says: Expected all tensors to be on the same device, but got mat2 is on cpu, different from other tensors on openreg:0
(when checking argument in method wrapper_PrivateUse1_mm)
"""

import torch

device = torch.accelerator.current_accelerator().type


class Head(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.ones(3, 3)

    def forward(self, x):
        return torch.mm(x, self.weight)


Head().to(device)(torch.ones(2, 3, device=device))
