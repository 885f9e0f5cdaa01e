"""AMP: the gradients are unscaled twice, because a helper that clips them does it too."""

import torch
from torch import nn


def clip(scaler, optimizer, parameters):
    scaler.unscale_(optimizer)  # BUG
    nn.utils.clip_grad_norm_(parameters, 1.0)


kind = torch.accelerator.current_accelerator().type
torch.manual_seed(0)
model = nn.Linear(16, 16).to(kind)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler(kind)
for _ in range(3):
    with torch.autocast(kind, dtype=torch.float16):
        loss = model(torch.ones(4, 16, device=kind)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)  # BUG, not in the repair
    clip(scaler, optimizer, model.parameters())  # BUG
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item() > 0)
