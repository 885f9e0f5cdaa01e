"""Indices that stay on the CPU: a tokenizer's output stays on the CPU, and the embedding is on the device.

Seen in https://github.com/haoosz/ConceptExpress/issues/5
Says: Expected all tensors to be on the same device, but got index is on cpu, different from other tensors on
openreg:0 (when checking argument in method wrapper_PrivateUse1__index_select)
"""

import torch

device = torch.accelerator.current_accelerator().type
table = torch.nn.Embedding(10, 4).to(device)
ids = torch.tensor([1, 2, 3])
table(ids)
