"""A custom operator writes blocks of 64 elements, also behind the end of the last block."""

import ctypes

import torch
from openreg_c import call

device = torch.accelerator.current_accelerator()


@torch.library.custom_op("planted::clear", mutates_args={"x"})
def clear(x: torch.Tensor) -> None:
    blocks = (x.numel() + 63) // 64
    stream = ctypes.c_void_p(torch.accelerator.current_stream().native_handle)
    size = blocks * 64 * 4
    # REPAIR: size = x.numel() * 4
    call("orMemsetAsync", x.data_ptr(), 0, size, stream)  # BUG


first, second = torch.ones(100, device=device), torch.ones(100, device=device)
clear(first)  # BUG
torch.accelerator.synchronize()
print(first.sum().item(), second.sum().item())
