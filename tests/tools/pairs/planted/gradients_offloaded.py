"""Gradients are copied to the host on a side stream while zero_grad() clears them."""

import torch

device = torch.accelerator.current_accelerator().type
weight = torch.arange(1024.0, device=device).requires_grad_()
store = torch.zeros(1024).pin_memory()
copies = torch.Stream(device=device)
norms = []
for step in range(3):
    (weight * (step + 1)).sum().backward()
    copies.wait_stream(torch.accelerator.current_stream())
    with copies:
        store.copy_(weight.grad, non_blocking=True)
    # REPAIR: torch.accelerator.current_stream().wait_stream(copies)
    weight.grad.zero_()  # BUG
    copies.synchronize()
    norms.append(store.norm().item())
print(norms)
