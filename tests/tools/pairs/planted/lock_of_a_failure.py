"""A failure leaves a lock taken, and the next request waits for it for ever."""

import threading

import torch

device = torch.accelerator.current_accelerator()
lock = threading.Lock()


def request(number):
    lock.acquire()  # BUG
    # REPAIR: lock.release()
    result = torch.full((64,), number + 1.0, device=device).sum().item()  # BUG
    # REPAIR: lock.acquire()
    lock.release()
    return result


for number in range(4):
    try:
        print("answer", request(number))  # BUG
    except RuntimeError as error:
        print("error", error)
