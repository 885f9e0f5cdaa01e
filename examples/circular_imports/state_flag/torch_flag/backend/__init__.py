"""The backend. ``import torch_flag.backend`` is how programs load it by hand; ``import torch_flag`` loads nothing."""

import sys

import torch_flag

# Before torch, whose import calls _autoload.
torch_flag.is_loaded = True

import torch  # noqa: E402

torch.flag = sys.modules[__name__]


def is_available():
    return True
