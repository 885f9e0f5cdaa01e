"""A process sends a device tensor and ends before the other has opened it."""

import torch
import torch.multiprocessing as mp


def produce(queue, is_read):
    device = torch.accelerator.current_accelerator()
    queue.put(torch.full((64,), 3.0, device=device))  # BUG
    queue.close()
    queue.join_thread()
    # REPAIR: is_read.wait()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    queue, is_read = context.Queue(), context.Event()
    process = context.Process(target=produce, args=(queue, is_read))
    process.start()
    # REPAIR: received = queue.get()
    process.join()  # BUG, not in the repair
    received = queue.get()  # BUG, not in the repair
    print(received.sum().item())  # BUG
    del received
    is_read.set()
    process.join()
