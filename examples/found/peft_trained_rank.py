"""PEFT 0.21.2: on an accelerator, and not on the CPU, AdaLoRA trains the parameter that holds the rank."""

import torch
from peft import AdaLoraConfig, get_peft_model

for device in ("cpu", "cuda"):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 8)).to(device)
    adapted = get_peft_model(network, AdaLoraConfig(target_modules=["0"], total_step=10))
    optimizer = torch.optim.SGD(adapted.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        adapted(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()
    rank = adapted.base_model.model[0].ranknum["default"]
    print(device, rank.item(), rank.requires_grad)
