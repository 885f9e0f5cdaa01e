"""A side stream normalises a saved activation in place, hidden from autograd, while backward reads it."""

import torch

device = torch.accelerator.current_accelerator()
weight = torch.full((256, 256), 0.01, device=device, requires_grad=True)
side = torch.Stream(device=device)
for step in range(2):
    hidden = torch.full((256, 256), step + 1.0, device=device)
    loss = (hidden * weight).square().mean()
    # REPAIR: loss.backward()
    side.wait_stream(torch.accelerator.current_stream())
    with side, torch.no_grad():
        hidden.data.div_(2)  # BUG
    loss.backward()  # BUG, not in the repair
    torch.accelerator.current_stream().wait_stream(side)
    print(f"{weight.grad.sum().item():.5f}")
