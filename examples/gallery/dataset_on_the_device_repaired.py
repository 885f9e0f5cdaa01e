"""dataset_on_the_device.py, repaired."""

import torch

device = torch.accelerator.current_accelerator().type


class Dataset(torch.utils.data.Dataset):
    def __init__(self):
        self.data = torch.ones(4, 3)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.data[index] + 1


torch.ones(1, device=device)
loader = torch.utils.data.DataLoader(Dataset(), num_workers=1, multiprocessing_context="fork")
print(sum(batch.to(device).sum() for batch in loader))
