"""A backend that needs torch at its top, as most do."""

import sys

import torch

torch.door = sys.modules[__name__]


def is_available():
    return True
