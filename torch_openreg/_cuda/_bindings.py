"""The module torch_openreg._C, with the functions that it has only if the type is cuda (_bindings.pyi)."""

import sys

from torch_openreg import _C

sys.modules[__name__] = _C
