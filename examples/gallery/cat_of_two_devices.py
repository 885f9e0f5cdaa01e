"""A list of results from two devices: new boxes are made on the CPU and appended to boxes on the device.

Seen in https://github.com/phil-bergmann/tracking_wo_bnw/issues/172
Says: Expected all tensors to be on the same device, but got tensors is on cpu, different from other tensors on
openreg:0 (when checking argument in method wrapper_PrivateUse1_cat)
"""

import torch

device = torch.accelerator.current_accelerator().type
boxes = torch.rand(3, 4, device=device)
new = torch.zeros(1, 4)
torch.cat([boxes, new])
