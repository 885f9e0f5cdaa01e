"""A ring of pinned buffers: the host refills a buffer whose copy to the device may not have ended."""

import itertools

import torch

DEV = torch.accelerator.current_accelerator().type


def stage(rows, depth):
    ring = [torch.empty(len(rows[0]), pin_memory=True) for _ in range(depth)]
    done = [torch.Event(device=DEV) for _ in range(depth)]
    for row, (slot, event) in zip(rows, itertools.cycle(list(zip(ring, done, strict=True))), strict=False):
        # REPAIR: event.synchronize()
        slot.copy_(torch.as_tensor(row))  # BUG
        moved = slot.to(DEV, non_blocking=True)
        event.record()
        yield moved


rows = [[float(i + j) for j in range(256)] for i in range(7)]
print(sum(x.square().sum() for x in stage(rows, 2)).item())
