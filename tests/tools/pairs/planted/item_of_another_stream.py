"""The loss of a validation stream is read with item(), which waits for the current stream only."""

import torch

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(32, 1).to(device)
data = torch.randn(128, 32).to(device)
validation = torch.Stream(device=device)
validation.wait_stream(torch.accelerator.current_stream())
with validation, torch.no_grad():
    loss = model(data).square().mean()  # BUG
# REPAIR: torch.accelerator.current_stream().wait_stream(validation)
print("loss", loss.item())  # BUG
