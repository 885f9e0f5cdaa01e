"""One event serves two producers: the consumer of the first one waits for the record of the second one."""

import torch

dev = torch.accelerator.current_accelerator().type
a, b, joined = (torch.Stream(device=dev) for _ in range(3))
event = torch.Event(device=dev)
x = torch.zeros(4096, device=dev)
y = torch.zeros(4096, device=dev)
a.wait_stream(torch.accelerator.current_stream())
b.wait_stream(torch.accelerator.current_stream())
with a:
    x += 7
    event.record(a)
# REPAIR: joined.wait_event(event)
with b:
    y += 5
    event.record(b)
joined.wait_event(event)
with joined:
    z = x + y  # BUG
joined.synchronize()
torch.accelerator.synchronize()
print(z.sum().item())
