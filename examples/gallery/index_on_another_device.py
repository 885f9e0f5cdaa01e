"""The first device instead of the tensor's.

The program says `cuda:0` instead of the tensor's own device. The error shows only with a second GPU.

Seen in https://github.com/zhongyy/Face-Transformer/issues/37
Says: Expected all tensors to be on the same device, but got index is on openreg:0, different from other tensors on
openreg:1 (when checking argument in method wrapper_PrivateUse1_scatter__value)
"""

import torch

device = torch.accelerator.current_accelerator().type
logits = torch.zeros(2, 5, device=f"{device}:1")
label = torch.tensor([[1], [2]], device=f"{device}:0")
logits.scatter_(1, label, 1.0)
