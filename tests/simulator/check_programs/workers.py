"""A correct program: a data loader whose workers are forked after the device has started, and run lines of this file."""

import torch
from torch.utils.data import DataLoader, Dataset

device = torch.accelerator.current_accelerator().type


class Squares(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        root = torch.tensor(float(index))
        return root * root


total = torch.zeros((), device=device)
for batch in DataLoader(Squares(), batch_size=4, num_workers=2, pin_memory=True):
    total += batch.to(device, non_blocking=True).sum()
print(total.item())
