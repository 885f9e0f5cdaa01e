"""A thread that computes dies of a failure, and the main thread waits for its results for ever."""

import queue
import threading

import torch

device = torch.accelerator.current_accelerator()
results = queue.Queue()


def work():
    # REPAIR: try:
    # REPAIR:     for i in range(3): results.put(torch.full((64,), float(i), device=device).sum().item())
    # REPAIR: except BaseException as error: results.put(error)
    # REPAIR: return
    for i in range(3):
        results.put(torch.full((64,), float(i), device=device).sum().item())  # BUG


thread = threading.Thread(target=work, daemon=True)
thread.start()
total = 0.0
for _ in range(3):
    value = results.get()  # BUG
    # REPAIR: if isinstance(value, BaseException): raise value
    total += value
print(total)
