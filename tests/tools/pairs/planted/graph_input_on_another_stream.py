"""The next input of a captured step is copied on a stream for which the replay does not wait."""

import torch

device = torch.accelerator.current_accelerator()
static = torch.zeros(1 << 12, device=device)
batches = [torch.full((1 << 12,), float(i)).pin_memory() for i in range(4)]
copies = torch.Stream(device=device)
side = torch.Stream(device=device)
side.wait_stream(torch.accelerator.current_stream())
graph = torch.accelerator.Graph()
with side, graph:
    result = static.sqrt() + 1
torch.accelerator.current_stream().wait_stream(side)
total = torch.zeros(1 << 12, device=device)
for batch in batches:
    copies.wait_stream(torch.accelerator.current_stream())
    with copies:
        static.copy_(batch, non_blocking=True)  # BUG
    # REPAIR: torch.accelerator.current_stream().wait_stream(copies)
    graph.replay()  # BUG
    total += result
print("total", total.sum().item())
