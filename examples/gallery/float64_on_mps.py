"""numpy's default dtype on MPS: data from numpy is float64, which MPS does not have.

Seen in https://github.com/thu-ml/tianshou/pull/1237
Says: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32
instead.
Run with: OPENREG_MODEL=mps-like
"""

import torch

device = torch.accelerator.current_accelerator().type
observation = torch.rand(2, dtype=torch.float64)
observation.to(device)
