"""A prefetcher with two device buffers refills one while the default stream may still read it."""

import torch


class Prefetcher:
    def __init__(self, batches, device):
        self.batches = [batch.pin_memory() for batch in batches]
        self.buffers = [torch.empty_like(batch, device=device) for batch in batches[:2]]
        self.stream = torch.Stream(device=device)
        self.consumed = [None, None]

    def __iter__(self):
        for index, batch in enumerate(self.batches):
            slot = index % 2
            # REPAIR: if self.consumed[slot] is not None: self.stream.wait_event(self.consumed[slot])
            with self.stream:
                self.buffers[slot].copy_(batch, non_blocking=True)  # BUG
            torch.accelerator.current_stream().wait_stream(self.stream)
            yield self.buffers[slot]
            self.consumed[slot] = torch.accelerator.current_stream().record_event()


device = torch.accelerator.current_accelerator()
batches = [torch.full((1 << 12,), float(i)) for i in range(6)]
total = torch.zeros(1 << 12, device=device)
for batch in Prefetcher(batches, device):
    total += batch.sqrt()
print("total", total.sum().item())
