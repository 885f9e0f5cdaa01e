"""A batched product of integers: the CPU multiplies integer matrices, cuBLAS does not.

Seen in https://github.com/pytorch/pytorch/issues/89338
Says: "baddbmm_cuda" not implemented for 'Long'
Run with: OPENREG_MODEL=cuda-a100
"""

import torch

device = torch.accelerator.current_accelerator().type
a = torch.randint(-6, 8, [3, 2, 2]).to(device)
b = torch.randint(-6, 8, [3, 2, 2]).to(device)
torch.matmul(a, b)
