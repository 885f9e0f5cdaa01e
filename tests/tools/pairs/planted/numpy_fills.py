"""NumPy fills pinned memory while it is copied."""

import torch

if __name__ == "__main__":
    device = torch.accelerator.current_accelerator()
    shared = torch.ones(1 << 12).pin_memory()
    moved = shared.to(device, non_blocking=True)
    # REPAIR: torch.accelerator.synchronize()
    shared.numpy()[:] = 5  # BUG
    torch.accelerator.synchronize()
    print(moved.mean().item())
