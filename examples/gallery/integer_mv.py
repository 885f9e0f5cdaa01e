"""A linear index as a product with the strides: an integer product is fine on the CPU and is not implemented for CUDA.

Seen in https://github.com/elixir-nx/nx/issues/1009
Says: "addmv_impl_cuda" not implemented for 'Long'
Run with: OPENREG_MODEL=cuda-h100
"""

import torch

device = torch.accelerator.current_accelerator().type
index = torch.tensor([[0, 1], [1, 2]]).to(device)
strides = torch.tensor([3, 1]).to(device)
index @ strides
