"""A training loop in mixed precision, and its checkpoint. Run: python 03_training_with_autocast.py"""

# %% No line names a device: current_accelerator() returns the device. The same program trains on CUDA.
import io

import torch
from torch import nn

device = torch.accelerator.current_accelerator()

# %% The task is a small classification problem: to which of four corners does a point belong?
torch.manual_seed(0)
points = torch.randn(512, 2)
corners = (points[:, 0] > 0).long() * 2 + (points[:, 1] > 0).long()
loader = torch.utils.data.DataLoader(
    torch.utils.data.TensorDataset(points, corners), batch_size=64, shuffle=True, pin_memory=True
)

model = nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scaler = torch.amp.GradScaler(device.type)

# %% Gradients in float16 may underflow, so the loss is scaled. The scaler skips steps with an overflow.
for epoch in range(8):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    print(f"epoch {epoch}: loss {total / len(loader):.3f}")

with torch.no_grad(), torch.autocast(device.type, dtype=torch.float16):
    accuracy = (model(points.to(device)).argmax(1) == corners.to(device)).float().mean().item()
print(f"accuracy {accuracy:.3f}")
assert accuracy > 0.9

# %% The checkpoint can be loaded on a machine without the device.
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
weights = torch.load(file, map_location="cpu")
assert {weight.device.type for weight in weights.values()} == {"cpu"}
assert all(torch.equal(weights[name], weight.cpu()) for name, weight in model.state_dict().items())
