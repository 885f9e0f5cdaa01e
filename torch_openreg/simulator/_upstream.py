"""Functions of PyTorch that this folder replaces: rows of torch_openreg._upstream."""

from __future__ import annotations

from torch_openreg._upstream import Replaced

PRINTING = (
    Replaced(
        "torch._tensor_str",
        "tensor_totype",
        "torch_openreg.openreg.models:print_in_float32",
        "PyTorch prints in float64, except on devices that it knows by name. A device model may lack float64.",
        "the device's capabilities say whether it has float64",
    ),
)
# While the sanitizer runs.
READERS = tuple(
    Replaced(
        "torch:Tensor",
        name,
        "torch_openreg.openreg.sanitizer:_telling",
        "This method gives the bytes of a CPU tensor to code that calls no operator: the sanitizer must see the read.",
        "a callback for accesses of the host",
    )
    for name in ("numpy", "tolist", "__reduce_ex__")
)
ROWS = PRINTING + READERS
