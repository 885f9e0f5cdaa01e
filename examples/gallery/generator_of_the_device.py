"""A generator of the device for a draw on the CPU.

The generator was made for the device, and `randperm` draws on the CPU.

Seen in https://github.com/zhang-can/CoLA/issues/10
Says: Expected a 'cpu' generator device but found 'openreg:0'
"""

import torch

device = torch.accelerator.current_accelerator().type
generator = torch.Generator(device).manual_seed(0)
torch.randperm(4, generator=generator)
