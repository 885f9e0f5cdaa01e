"""The public names of ``torch.openreg`` that this folder adds, as torch_openreg.openreg._names has them.

At run time, each submodule is imported as ``torch_openreg.openreg.faults``, and never by its place in this folder: that
would be a second module, with classes and state of its own.
"""

from __future__ import annotations

SUBMODULES = {"dry": (), "faults": (), "models": ("device_model", "is_tf32_supported"), "sanitizer": ()}
