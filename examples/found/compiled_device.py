"""PyTorch 2.13: a function that aot_eager compiled ignores the device that the function makes current."""

import torch


def make(x):
    with torch.openreg.device(1):
        y = torch.ones(2, device="openreg")
    return x + 1, y


x = torch.zeros(2, device="openreg:0")
print("eager:", make(x)[1].device)
print("aot_eager:", torch.compile(make, backend="aot_eager", fullgraph=True)(x)[1].device)
