"""The module torch_openreg._C, with the functions that only this folder needs (_bindings.pyi)."""

import sys

from torch_openreg import _C

sys.modules[__name__] = _C
