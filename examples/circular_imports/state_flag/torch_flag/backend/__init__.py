"""The backend. A program loads it with ``import torch_flag.backend``. ``import torch_flag`` alone loads nothing."""

import sys

import torch_flag

# This line comes before the import of torch, which calls _autoload.
torch_flag.is_loaded = True

import torch  # noqa: E402

torch.flag = sys.modules[__name__]


def is_available():
    return True
