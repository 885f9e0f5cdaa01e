"""A pipeline that casts to float64: post-processing casts scores to float64 whatever the device is.

Seen in https://github.com/huggingface/transformers/issues/31060
Says: Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64. Please use float32
instead.
Run with: OPENREG_MODEL=strict
"""

import torch

device = torch.accelerator.current_accelerator().type
scores = torch.rand(4, device=device)
scores.to(torch.float64).softmax(0)
