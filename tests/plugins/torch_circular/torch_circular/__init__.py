"""Imports torch, which calls _autoload, which is not there yet if this package was imported first."""

import torch


def _autoload():
    torch.circular = True
