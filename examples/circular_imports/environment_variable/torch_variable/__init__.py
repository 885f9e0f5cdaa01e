"""This package switches autoload off while it imports torch. Then it restores the setting, for child processes."""

import os
import sys

before = os.environ.get("TORCH_DEVICE_BACKEND_AUTOLOAD")
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import torch
finally:
    if before is None:
        del os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
    else:
        os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = before

torch.variable = sys.modules[__name__]


def is_available():
    return True


def _autoload():
    """Does nothing: PyTorch imports the package to find this function, and that import loads the backend."""
