"""The model moves, its input does not: a linear layer on the device gets a tensor of the CPU.

Seen in https://github.com/kijai/ComfyUI-FluxTrainer/issues/116
Says: Expected all tensors to be on the same device, but got mat1 is on cpu, different from other tensors on openreg:0
(when checking argument in method wrapper_PrivateUse1_addmm)
"""

import torch

device = torch.accelerator.current_accelerator().type
model = torch.nn.Linear(3, 3).to(device)
batch = torch.ones(2, 3)
model(batch)
