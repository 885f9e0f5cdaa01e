"""A captured step is replayed, and the new batch is never copied into the captured one."""

import torch

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
w = torch.randn(16, 16, device=device)
batches = [torch.randn(4, 16, device=device) for _ in range(4)]
static = batches[0].clone()
side = torch.Stream(device=device)
side.wait_stream(torch.accelerator.current_stream())
graph = torch.accelerator.Graph()
with side, graph:
    out = (static @ w).tanh()
torch.accelerator.current_stream().wait_stream(side)
sums = []
for batch in batches:
    static = batch  # BUG, not in the repair
    # REPAIR: static.copy_(batch)
    graph.replay()  # BUG
    sums.append(out.sum().item())
print(sums)
