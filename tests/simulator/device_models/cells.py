"""The cells (an operator of OpInfo, a dtype) that the CPU has and CUDA has not, and the other way round.

OpInfo's conditions ask for the GPU when OpInfo is imported. Therefore a separate process first pins the compute
capability and then imports OpInfo: ``python -m tests.simulator.device_models.cells 8.0``, which prints JSON.
"""

from __future__ import annotations

import json
import sys


def pin(capability: tuple[int, int]) -> None:
    """From here on the conditions SM80OrLater and their like are those of a GPU with this compute capability."""
    from torch.testing._internal import common_cuda

    for name in vars(common_cuda):
        if name.startswith("SM") and name.endswith("OrLater"):
            digits = name[2 : -len("OrLater")]
            setattr(common_cuda, name, capability >= (int(digits[:-1]), int(digits[-1])))


def cells() -> dict[str, dict[str, list[str]]]:
    """``"cpu"`` and ``"cuda"``: operator -> dtypes that only this one has."""
    import torch
    from torch.testing._internal.common_methods_invocations import op_db

    only: dict[str, dict[str, list[str]]] = {"cpu": {}, "cuda": {}}
    for op in op_db:
        cpu, cuda = set(op.dtypes), set(op.dtypesIfCUDA)
        if op.name == "norm":
            cuda.add(torch.complex32)  # OpInfo does not list this dtype, but an H100 takes it
        for kind, dtypes in (("cpu", cpu - cuda), ("cuda", cuda - cpu)):
            if dtypes:
                only[kind][op.formatted_name] = sorted(str(dtype).removeprefix("torch.") for dtype in dtypes)
    return only


if __name__ == "__main__":
    major, minor = map(int, sys.argv[1].split("."))
    pin((major, minor))
    print(json.dumps(cells()))
