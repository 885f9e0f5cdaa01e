"""A dataset that lives on the device: the dataset keeps a tensor of the device, and the loader's workers are forked.

Seen in https://github.com/pytorch/pytorch/issues/40403
Says: Cannot re-initialize OpenReg in forked subprocess. To use OpenReg with multiprocessing, you must use the 'spawn'
start method
"""

import torch

device = torch.accelerator.current_accelerator().type


class Dataset(torch.utils.data.Dataset):
    def __init__(self):
        self.data = torch.ones(4, 3, device=device)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.data[index] + 1


torch.ones(1, device=device)
loader = torch.utils.data.DataLoader(Dataset(), num_workers=1, multiprocessing_context="fork")
print(sum(batch.to(device).sum() for batch in loader))
