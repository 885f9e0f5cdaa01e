"""The facts on which a compiled graph depends besides the graph and PyTorch: a part of inductor's cache key."""

import hashlib
import pathlib  # not `from pathlib import Path`: install_config_module() reads each class here as a group of settings
import sys

from torch.utils._config_module import install_config_module

from torch_openreg import _paths

version: str = _paths.__version__

sources: str = hashlib.sha256(
    b"".join(
        pathlib.Path(__file__).with_name(name).read_bytes()
        for name in ("_codegen.py", "_differences.py", "_upstream.py", "launch.h")
    )
).hexdigest()
"""A hash of the files that determine the generated code. If one of them changes, inductor does not use its cached code.

In an editable installation the files can change while ``version`` stays the same.
"""

install_config_module(sys.modules[__name__])
