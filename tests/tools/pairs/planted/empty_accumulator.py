"""Gradients are accumulated by hand into buffers of torch.empty_like()."""

import torch
from torch import nn

torch.manual_seed(0)
dev = torch.accelerator.current_accelerator().type
model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 2)).to(dev)
buffers = [torch.empty_like(p) for p in model.parameters()]  # BUG, not in the repair
# REPAIR: buffers = [torch.zeros_like(p) for p in model.parameters()]
for _ in range(4):
    loss = model(torch.randn(4, 8, device=dev)).pow(2).mean()
    for buffer, grad in zip(buffers, torch.autograd.grad(loss, list(model.parameters())), strict=True):
        buffer.add_(grad, alpha=0.25)  # BUG
with torch.no_grad():
    for p, buffer in zip(model.parameters(), buffers, strict=True):
        p -= 0.1 * buffer
print("weights", sum(p.sum().item() for p in model.parameters()))
