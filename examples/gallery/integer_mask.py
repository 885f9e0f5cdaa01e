"""A mask of integers in a batched product: `bmm` of an int32 tensor that came from numpy.

Seen in https://github.com/cure-lab/DeciWatch/issues/8
Says: "baddbmm_cuda" not implemented for 'Int'
Run with: OPENREG_MODEL=consumer-8gb
"""

import torch

device = torch.accelerator.current_accelerator().type
mask = torch.ones(2, 3, 3, dtype=torch.int32).to(device)
frames = torch.ones(2, 3, 4, dtype=torch.int32).to(device)
torch.bmm(mask, frames)
