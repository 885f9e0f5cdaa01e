"""A correct program: a small training with non-blocking copies and a retry, which saves its model and prints times."""

import time

import torch
from torch import nn

device = torch.accelerator.current_accelerator().type
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
parameters = list(model.parameters())
pinned = torch.randn(16, 4).pin_memory()
batch = pinned.to(device, non_blocking=True)
target = batch.sum(1, keepdim=True)
losses = []
for step in range(4):
    begin = time.time()
    loss = nn.functional.mse_loss(model(batch), target)
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.data.sub_(gradient, alpha=0.1)
    losses.append(loss.detach())
    torch.openreg.sanitizer.mark()
    host = loss.detach().to("cpu", non_blocking=True)
    torch.accelerator.synchronize()
    print(f"step {step}: {host.item():.6f}, {time.time() - begin:.3f} s, at {time.time()}")
torch.save(model.state_dict(), "model.pt")
