"""A history keeps the graph of every step."""

import torch

device = torch.accelerator.current_accelerator().type
weight = torch.ones(64, 64, device=device, requires_grad=True)
history = []
for _ in range(6):
    loss = (weight * 2).square().mean()  # BUG: the history keeps what this line allocates
    history.append(loss)
    torch.openreg.sanitizer.mark()
print(float(history[-1]))
