"""A raw address is taken of a temporary tensor, which is freed before a library copies from it."""

import ctypes

import torch
from openreg_c import DEVICE_TO_DEVICE, call

device = torch.accelerator.current_accelerator()
target = torch.zeros(256, device=device)
stream = ctypes.c_void_p(torch.accelerator.current_stream().native_handle)


def as_address(values):
    packed = torch.tensor(values, device=device).repeat(2)
    # REPAIR: kept.append(packed)
    return packed.data_ptr()


kept = []
address = as_address([1.0] * 128)
call("orMemcpyAsync", target.data_ptr(), address, target.nbytes, DEVICE_TO_DEVICE, stream)  # BUG
torch.accelerator.synchronize()
print(target.sum().item())
