"""Each step starts a thread that keeps the batch and waits for a signal that never comes."""

import threading

import torch

device = torch.accelerator.current_accelerator()
model = torch.nn.Linear(16, 16).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
written = threading.Event()


def log(batch, done):
    done.wait()  # BUG
    batch.sum()


for step in range(8):
    batch = torch.full((32, 16), step + 1.0, device=device)  # BUG
    loss = model(batch).mean()
    done = threading.Event()
    threading.Thread(target=log, args=(batch, done), daemon=True).start()  # BUG
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"{loss.item():.4f}")
    # REPAIR: done.set()
