"""The forms of an operator: which overloads a backend writes, and which PyTorch derives from them.

The answers come from native_functions.yaml, which the package torchgen of PyTorch contains. This module does not import
torch.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path


def _base(name: str) -> str:
    """The name that all forms of an operator share: ``add`` for ``add_.Tensor`` and ``add.out``."""
    return name.split(".")[0].rstrip("_")


@functools.cache
def _families() -> dict[str, dict[str, str]]:
    """The entries of native_functions.yaml by the name and overload, for each shared name."""
    found = importlib.util.find_spec("torchgen")
    if found is None or found.origin is None:
        return {}
    text = (Path(found.origin).parent / "packaged/ATen/native/native_functions.yaml").read_text()
    families: dict[str, dict[str, str]] = {}
    for block in text.split("\n- func: ")[1:]:
        name = block.split("(", 1)[0]
        families.setdefault(_base(name), {})[name] = block
    return families


def forms(operator: str) -> tuple[list[str], list[str]]:
    """The overloads to write, and the overloads that PyTorch derives from them, for ``aten::add.out``.

    A structured overload is marked as such. Both lists are empty for an operator that native_functions.yaml lacks.
    """
    write, derived = [], []
    exact = operator.removeprefix("aten::")
    for name, block in _families().get(_base(exact), {}).items():
        composite = "\n  dispatch:" not in block or re.search(r"Composite\w+Autograd", block)
        # A composite kernel that needs a kernel of the device, such as convolution_overrideable, is written, too.
        if "structured_delegate:" in block or (composite and name != exact):
            derived.append(name)
        # Other forms that a single device in PyTorch has are nobody else's.
        elif composite or name == exact or "CPU" in block.split("\n  dispatch:")[1]:
            write.append(f"{name} (structured)" if "structured: True" in block else name)
        if generated := re.search(r"\n  autogen: (.*)", block):
            derived += generated[1].split(", ")
    return write, derived
