"""A producer thread computes on a stream of its own, and hands tensors over without an event."""

import queue
import threading

import torch

device = torch.device(torch.accelerator.current_accelerator().type, 0)
handed = queue.Queue(maxsize=1)


def produce(n):
    stream = torch.Stream(device=device)
    try:
        with stream:
            for i in range(n):
                value = torch.full((512,), float(i), device=device).exp2()
                event = torch.Event(device=device)
                event.record(stream)
                value.record_stream(torch.accelerator.current_stream(device))
                handed.put((value, event))
        stream.synchronize()
    except BaseException as error:
        handed.put(error)
    else:
        handed.put(None)


producer = threading.Thread(target=produce, args=(5,), daemon=True)
producer.start()
total = torch.zeros((), device=device)
consumer = torch.Stream(device=device)
consumer.wait_stream(torch.accelerator.current_stream())
while (item := handed.get()) is not None:
    if isinstance(item, BaseException):
        raise item
    value, event = item
    with consumer:
        # REPAIR: consumer.wait_event(event)
        # REPAIR: value.record_stream(consumer)
        total += value.sum()  # BUG
    consumer.synchronize()
producer.join()
torch.accelerator.synchronize()
print(f"{total.item():.1f}")
