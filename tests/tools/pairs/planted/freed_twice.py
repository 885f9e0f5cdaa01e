"""A library frees its block twice, and by then another part of the library has it."""

import ctypes

import torch
from openreg_c import call, lib

device = torch.accelerator.current_accelerator()


class Buffer:
    def __init__(self, size):
        self.pointer = ctypes.c_void_p()
        call("orMalloc", ctypes.byref(self.pointer), size)
        call("orMemset", self.pointer, 1, size)

    def free(self):
        lib.orFree(self.pointer)  # BUG
        # REPAIR: self.pointer = ctypes.c_void_p()


torch.ones(1, device=device)
first = Buffer(4096)
first.free()  # BUG
second = Buffer(4096)
first.free()  # BUG
host = torch.zeros(4096, dtype=torch.uint8)
call("orMemcpy", host.data_ptr(), second.pointer, 4096, 2)  # BUG
print(host.sum().item())
second.free()
