"""New weights take the place of the old ones while a request still computes with them on its own stream."""

import torch

device = torch.accelerator.current_accelerator()
weight = torch.full((1 << 14,), 1.0, device=device)
requests = torch.Stream(device=device)
requests.wait_stream(torch.accelerator.current_stream())
answers = []
for version in range(3):
    with requests:
        answers.append((weight.cos() * 2).sum())  # BUG
    # REPAIR: weight.record_stream(requests)
    del weight  # BUG
    weight = torch.full((1 << 14,), 2.0 + version, device=device)  # BUG
    requests.wait_stream(torch.accelerator.current_stream())
torch.accelerator.current_stream().wait_stream(requests)
print("answers", [answer.item() for answer in answers])
