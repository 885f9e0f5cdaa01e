"""An extension takes a reference to each batch and never drops it."""

import ctypes

import torch

device = torch.accelerator.current_accelerator()
model = torch.nn.Linear(16, 16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def hand_over(tensor):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(tensor))  # BUG
    result = tensor * 2
    # REPAIR: ctypes.pythonapi.Py_DecRef(ctypes.py_object(tensor))
    return result


for step in range(8):
    batch = torch.full((32, 16), step + 1.0, device=device)  # BUG
    loss = model(hand_over(batch)).mean()  # BUG
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
