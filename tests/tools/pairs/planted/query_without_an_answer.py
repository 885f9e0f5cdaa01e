"""event.query() is called, and nobody looks at its answer."""

import torch

kind = torch.accelerator.current_accelerator().type
values = torch.arange(0, 1 << 14, device=kind, dtype=torch.float32)
host = torch.empty(1 << 14, pin_memory=True)
host.copy_(values.flip(0), non_blocking=True)
event = torch.accelerator.current_stream().record_event()
event.query()  # BUG, not in the repair
# REPAIR: while not event.query(): pass
first, last = host[0], host[-1]  # BUG
print(f"first {first:.0f} last {last:.0f}")  # BUG
