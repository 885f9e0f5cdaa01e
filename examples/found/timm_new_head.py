"""timm 1.0.28: the head that reset() makes is on the CPU."""

import torch
from timm.layers.attention_pool2d import AttentionPool2d

head = AttentionPool2d(64, feat_size=4, out_features=10).cuda()
head.reset(num_classes=5)
head(torch.randn(2, 64, 4, 4, device="cuda"))
