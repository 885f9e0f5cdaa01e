"""Trains a small network on the device with the kernels of kernels.cpp, and the same network on the CPU.

python train.py KERNELS.so
"""

import sys

import torch
from torch import nn

torch.ops.load_library(sys.argv[1])


def train(device: str) -> tuple[list[float], list[torch.Tensor]]:
    """The losses of the steps, and the parameters afterwards."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
    inputs, targets = torch.rand(32, 5).to(device), torch.rand(32, 3).to(device)
    scale = torch.tensor(1 / 96).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        error = torch.add(model(inputs), targets, alpha=-1)
        loss = (error * error * scale).sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [parameter.detach().cpu() for parameter in model.parameters()]


if __name__ == "__main__":
    expected, parameters = train("cpu")
    losses, trained = train("openreg")
    torch.testing.assert_close(torch.tensor(losses), torch.tensor(expected))
    torch.testing.assert_close(trained, parameters)
    print(f"from {losses[0]:.4f} to {losses[-1]:.4f}")
