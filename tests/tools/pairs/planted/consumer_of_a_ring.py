"""A thread writes results that it gets in pinned memory; the producer refills the memory without asking it."""

import queue
import threading

import torch

device = torch.accelerator.current_accelerator()
ring = [torch.empty(1024, pin_memory=True) for _ in range(2)]
free = queue.Queue()
for slot in ring:
    free.put(slot)
jobs = queue.Queue()
sums = []


def write():
    while (job := jobs.get()) is not None:
        slot, event = job
        event.synchronize()
        sums.append(slot.sum().item())  # BUG
        free.put(slot)


thread = threading.Thread(target=write)
thread.start()
for step in range(6):
    slot = ring[step % 2]  # BUG, not in the repair
    # REPAIR: slot = free.get()
    slot.copy_(torch.full((1024,), step + 1.0, device=device), non_blocking=True)  # BUG
    jobs.put((slot, torch.accelerator.current_stream().record_event()))
jobs.put(None)
thread.join()
print(sums)
