"""autocast keeps the half-precision weight that a side stream has made, and the main stream uses it."""

import torch

device = torch.accelerator.current_accelerator()
model = torch.nn.Linear(64, 64).to(device)
first, second = torch.ones(8, 64, device=device), torch.full((8, 64), 2.0, device=device)
side = torch.Stream(device=device)
side.wait_stream(torch.accelerator.current_stream())
with torch.autocast(device.type, dtype=torch.bfloat16):
    with side:
        one = model(first)  # BUG
    # REPAIR: torch.accelerator.current_stream().wait_stream(side)
    two = model(second)  # BUG
torch.accelerator.current_stream().wait_stream(side)
print(one.float().sum().item(), two.float().sum().item())
