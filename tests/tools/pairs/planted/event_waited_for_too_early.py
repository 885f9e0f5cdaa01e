"""The consumer waits for the event before the producer has recorded it."""

import torch

device = torch.accelerator.current_accelerator()
producer, consumer = torch.Stream(device=device), torch.Stream(device=device)
source = torch.arange(1024.0, device=device)
torch.accelerator.synchronize()
ready = torch.Event(device=device)
consumer.wait_event(ready)  # BUG, not in the repair
with producer:
    made = source * 2  # BUG
    ready.record(producer)
# REPAIR: consumer.wait_event(ready)
with consumer:
    result = made + 1  # BUG
consumer.synchronize()
producer.synchronize()
print(result.sum().item())
