"""`finally` uses a name that a failure leaves unbound."""

import torch


def evaluate(device):
    try:
        logits = torch.ones(128, 128, device=device).softmax(-1)  # BUG
        # REPAIR: cached = None
        cached = logits.cpu()
        return cached.sum().item()
    except torch.OutOfMemoryError:
        print("skipping this evaluation: out of memory")
        return cached.mean().item()  # BUG, not in the repair
        # REPAIR: return float("nan")


print(evaluate(torch.accelerator.current_accelerator()) > 0)
