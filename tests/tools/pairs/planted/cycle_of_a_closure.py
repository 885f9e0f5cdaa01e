"""Each request makes an object that its own callback refers to, with a tensor of the device."""

import torch

device = torch.accelerator.current_accelerator()


class Request:
    def __init__(self, size):
        self.data = torch.ones(size, device=device)  # BUG
        self.callbacks = []

    def on_done(self, callback):
        self.callbacks.append(callback)

    def run(self):
        total = self.data.sum()
        for callback in self.callbacks:
            callback(total)
        # REPAIR: self.callbacks.clear()


results = []
for _ in range(12):
    request = Request(1 << 14)
    request.on_done(lambda total, request=request: results.append(total.item() + request.data.numel()))
    request.run()
print(len(results), sum(results))
