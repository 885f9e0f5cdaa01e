"""The host reads a device pointer as if it were memory of its own."""

import ctypes

import torch

x = torch.arange(8, dtype=torch.int32, device=torch.accelerator.current_accelerator())
# REPAIR: x = x.cpu()
values = (ctypes.c_int32 * 8).from_address(x.data_ptr())
print(list(values))  # BUG
