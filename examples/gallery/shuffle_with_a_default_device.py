"""A shuffling loader under a default device: the default device is the GPU, and the sampler's generator is the CPU's.

Seen in https://github.com/GXYM/TextBPN-Plus-Plus/issues/24
Says: Expected a 'openreg' device type for generator but found 'cpu'
"""

import torch

device = torch.accelerator.current_accelerator().type
torch.set_default_device(device)
loader = torch.utils.data.DataLoader(range(4), shuffle=True)
print(list(loader))
