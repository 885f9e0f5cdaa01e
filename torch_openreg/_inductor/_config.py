"""What a compiled graph depends on besides the graph and PyTorch: part of the key under which inductor caches it."""

import hashlib
import pathlib  # no class may be imported here: each would be a group of settings
import sys

from torch.utils._config_module import install_config_module

from torch_openreg import _paths

version: str = _paths.__version__

launch: str = hashlib.sha256(pathlib.Path(__file__).with_name("launch.h").read_bytes()).hexdigest()
"""The interface between the kernels and the device's library, which is embedded in each kernel."""

install_config_module(sys.modules[__name__])
