"""Each step registers a hook that keeps the activation of that step, and none is removed."""

import torch

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = 0
for _ in range(20):
    activation = torch.randn(32, 64).to(device)  # BUG

    def watch(module, inputs, output, kept=activation):  # BUG
        global seen
        seen += kept.shape[0]

    handle = model.register_forward_hook(watch)  # BUG
    optimizer.zero_grad()
    model(activation).square().mean().backward()  # BUG
    optimizer.step()
    # REPAIR: handle.remove()
print("done", torch.isfinite(model.weight).all().item())
