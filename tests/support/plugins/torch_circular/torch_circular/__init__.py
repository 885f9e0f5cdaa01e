"""Imports torch, which calls _autoload. If this package is imported before torch, _autoload does not exist yet."""

import torch


def _autoload():
    torch.circular = True
