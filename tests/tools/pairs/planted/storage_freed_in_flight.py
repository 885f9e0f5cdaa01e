"""The gathered weights are given back as soon as the layer was launched on its stream."""

import torch

device = torch.accelerator.current_accelerator()
shards = [torch.full((1 << 14,), 1.0 + i, device=device) for i in range(3)]
compute = torch.Stream(device=device)
compute.wait_stream(torch.accelerator.current_stream())
total = torch.zeros(1 << 14, device=device)
compute.wait_stream(torch.accelerator.current_stream())
gathered = torch.empty(1 << 14, device=device)
for shard in shards:
    gathered.untyped_storage().resize_(gathered.numel() * 4)
    gathered.copy_(shard)  # BUG
    compute.wait_stream(torch.accelerator.current_stream())
    with compute:
        total += gathered.sin()  # BUG
    # REPAIR: torch.accelerator.current_stream().wait_stream(compute)
    gathered.untyped_storage().resize_(0)  # BUG
torch.accelerator.current_stream().wait_stream(compute)
print("total", total.sum().item())
