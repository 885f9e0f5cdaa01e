"""A weighted sum with an integer matrix: `mm` of a one-hot matrix, whose elements are integers.

Seen in https://github.com/archon159/SELOR/issues/8
Says: "addmm_cuda" not implemented for 'Long'
Run with: OPENREG_MODEL=cuda-t4
"""

import torch

device = torch.accelerator.current_accelerator().type
chosen = torch.nn.functional.one_hot(torch.tensor([0, 2])).to(device)
table = torch.arange(6).reshape(3, 2).to(device)
torch.mm(chosen, table)
