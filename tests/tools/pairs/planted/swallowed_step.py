"""A broad `except RuntimeError` skips a batch of the training, and nobody is told."""

import torch

torch.manual_seed(0)
device = torch.accelerator.current_accelerator().type
model = torch.nn.Linear(8, 1).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)


def step(batch):
    optimizer.zero_grad()
    loss = model(batch.to(device)).pow(2).mean()  # BUG
    loss.backward()  # BUG
    optimizer.step()  # BUG
    return loss.item()


losses = []
for _ in range(5):
    batch = torch.randn(16, 8)
    try:
        losses.append(step(batch))
    except RuntimeError:
        # REPAIR: raise
        continue
print(f"{sum(losses):.6f}")
