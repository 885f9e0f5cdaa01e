"""pytorch-metric-learning 2.8.1: a parameter is indexed before it is moved to the device of the indices."""

import torch
from pytorch_metric_learning.losses import MarginLoss

loss = MarginLoss(learn_beta=True, num_classes=3)
embeddings = torch.randn(6, 8, device="cuda", requires_grad=True)
loss(embeddings, torch.tensor([0, 0, 1, 1, 2, 2], device="cuda"))
