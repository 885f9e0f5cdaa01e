"""collate() pads with new_empty(), so that the loss reads the padding."""

import torch
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.arange(1.0, 2.0 + i % 3)


def collate(rows):
    return rows


device = torch.accelerator.current_accelerator()
total = torch.zeros((), device=device)
for rows in DataLoader(Sequences(), batch_size=4, collate_fn=collate):
    longest = max(map(len, rows))
    padded = total.new_empty(len(rows), longest)  # BUG, not in the repair
    # REPAIR: padded = total.new_zeros(len(rows), longest)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values.to(device)
    total += padded.sum()  # BUG
print(total.item())
