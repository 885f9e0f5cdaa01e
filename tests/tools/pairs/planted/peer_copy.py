"""A copy to another device runs on a stream for which the reader does not wait."""

import torch

kind = torch.accelerator.current_accelerator().type
first, second = torch.device(kind, 0), torch.device(kind, 1)
with torch.device(first):
    x = torch.randn(1024, generator=torch.Generator(first).manual_seed(0)).abs()
transfers = torch.Stream(device=second)
y = torch.zeros(1024, device=second)
transfers.wait_stream(torch.accelerator.current_stream(second))
transfers.wait_stream(torch.accelerator.current_stream(first))
with transfers:
    y.copy_(x, non_blocking=True)
# REPAIR: torch.accelerator.current_stream(second).wait_stream(transfers)
result = y.add(1).log().sum()  # BUG
for device in (first, second):
    torch.accelerator.synchronize(device)
print(result.isfinite().item())
