"""`return` in `finally` drops the failure."""

import torch

device = torch.accelerator.current_accelerator()


def score(batch):
    result = 0.0
    try:
        result = batch.square().mean().item()  # BUG
        # REPAIR: return result
    finally:
        batch = None
        return result  # BUG, not in the repair  # noqa: B012


for step in range(4):
    print(score(torch.full((16,), step + 1.0, device=device)))  # BUG
