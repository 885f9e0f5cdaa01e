"""Position embeddings in float64: frequencies are computed in float64 on the device, for their accuracy.

Seen in https://github.com/bghira/SimpleTuner/issues/1523
Says: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32
instead.
Run with: OPENREG_MODEL=mps-like
"""

import torch

device = torch.accelerator.current_accelerator().type
steps = torch.arange(0, 8, 2, dtype=torch.float64, device=device)
frequencies = 1.0 / 10000 ** (steps / 8)
