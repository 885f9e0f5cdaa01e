"""Two branches run on two streams, and the sum waits for one of them."""

import torch

device = torch.accelerator.current_accelerator()
left, right = torch.Stream(device=device), torch.Stream(device=device)
x = torch.full((1 << 12,), 2.0, device=device)
for stream in (left, right):
    stream.wait_stream(torch.accelerator.current_stream())
with left:
    a = x.sqrt()
with right:
    b = x.square()  # BUG
torch.accelerator.current_stream().wait_stream(left)
# REPAIR: torch.accelerator.current_stream().wait_stream(right)
print("sum", (a + b).sum().item())  # BUG
