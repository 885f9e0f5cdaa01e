"""The facts on which a compiled graph depends besides the graph and PyTorch: a part of inductor's cache key."""

import hashlib
import pathlib  # not a class of it: inductor would take each class in this module for a group of settings
import sys

from torch.utils._config_module import install_config_module

from torch_openreg import _paths

version: str = _paths.__version__

sources: str = hashlib.sha256(
    b"".join(
        pathlib.Path(__file__).with_name(name).read_bytes() for name in ("_codegen.py", "_differences.py", "launch.h")
    )
).hexdigest()
"""What generates the code: also in an editable installation, code that an older generator has made is not used."""

install_config_module(sys.modules[__name__])
