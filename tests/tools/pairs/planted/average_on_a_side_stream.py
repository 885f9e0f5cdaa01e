"""The moving average of the weights is made on a side stream while the optimizer writes them."""

import torch

device = torch.accelerator.current_accelerator()
torch.manual_seed(0)
model = torch.nn.Linear(64, 64).to(device)
average = [parameter.detach().clone() for parameter in model.parameters()]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
side = torch.Stream(device=device)
for _ in range(4):
    optimizer.zero_grad()
    model(torch.randn(8, 64).to(device)).square().mean().backward()
    # REPAIR: torch.accelerator.current_stream().wait_stream(side)
    optimizer.step()  # BUG
    side.wait_stream(torch.accelerator.current_stream())
    with side, torch.no_grad():
        for mean, parameter in zip(average, model.parameters(), strict=True):
            mean.lerp_(parameter, 0.1)  # BUG
torch.accelerator.current_stream().wait_stream(side)
print("average", sum(mean.sum().item() for mean in average))
