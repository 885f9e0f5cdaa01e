"""PyTorch's inductor suite for one device: a test file of ours, made from the checkout's test_torchinductor*.py.

PyTorch's files make their classes for the CPU and for the GPUs that have Triton. The tests themselves are generic: they
ask ``self.device`` and ``self.common``. This file loads the checkout's file, which OPENREG_CLIENTS_FILE names, and
makes the same tests for the device that PYTORCH_TESTING_DEVICE_ONLY_FOR names: the CPU, or the device as a GPU.
"""

from __future__ import annotations

import ast
import os
import re
import sys
import unittest
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from gone import STUBS, stub
from torch.testing._internal import common_device_type, inductor_utils

FILE = Path(os.environ["OPENREG_CLIENTS_FILE"])
DEVICE = os.environ["PYTORCH_TESTING_DEVICE_ONLY_FOR"]
TEMPLATE, OPERATORS = "test_torchinductor", "test_torchinductor_opinfo"


def load(name: str) -> ModuleType:
    """A module of the checkout.

    PyTorch's files import GPU_TYPE. A vendor's copy sets a similar name itself (``XPU_TYPE = "xpu"``). This function
    replaces that value by ``DEVICE``. But if ``DEVICE`` is the CPU, only the file of operators gets the value "cpu",
    because that file makes its tests only for the device of this name. Every other file gets the value "".

    The custom operators of the files have a kernel for the dispatch key CUDA, or for the vendor's key. This key becomes
    the key of ``DEVICE``, or PrivateUse1 if ``DEVICE`` is the CPU.
    """
    path = FILE.with_name(f"{name}.py")
    tree = ast.parse(path.read_text(), str(path))
    for node in tree.body:
        if isinstance(node, ast.Assign) and re.fullmatch(r"[A-Z]PU_TYPE = '\w+'", ast.unparse(node)):
            node.value = ast.copy_location(ast.Constant(DEVICE if DEVICE != "cpu" or name == OPERATORS else ""), node)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="impl"), args=[_, _, ast.Constant(value="CUDA" | "NPU") as key]):
                key.value = "PrivateUse1" if DEVICE == "cpu" else torch._C._dispatch_key_for_device(DEVICE)
    STUBS.extend(stub(tree))
    module = sys.modules[name] = ModuleType(name)
    module.__file__ = str(path)
    exec(compile(tree, str(path), "exec"), vars(module))
    return module


def suite() -> ModuleType:
    """The checkout's module, with ``DEVICE`` as its GPU."""
    sys.path[:0] = [str(FILE.parents[1]), str(FILE.parent)]  # its files import each other from both folders
    if DEVICE != "cpu":
        vars(inductor_utils).update(
            GPU_TYPE=DEVICE,
            HAS_GPU=True,
            HAS_MULTIGPU=torch.get_device_module(DEVICE).device_count() > 1,
            requires_gpu=partial(unittest.skipIf, False, ""),
        )
        # PyTorch skips a test of large tensors on a device that it does not know. This device's memory is the host's.
        enough = common_device_type._has_sufficient_memory
        common_device_type._has_sufficient_memory = lambda device, size: enough("cpu", size)
    template = load(TEMPLATE)
    if DEVICE != "cpu":  # the device's loops are C++ code, as the CPU's are
        vars(template).update(is_cpp_backend=lambda device: True, is_triton_backend=lambda device: False)
    return template if FILE.stem == TEMPLATE else load(FILE.stem)


def classes(module: ModuleType) -> dict[str, Any]:
    """Test classes for ``DEVICE``, by name."""
    if module.__name__ == OPERATORS:
        for table in vars(module).values():  # device -> what to skip, the tolerances or the samples
            if isinstance(table, dict) and isinstance(table.get("cpu"), dict):
                table[DEVICE] = table["cpu"]
        (cases,) = (each for name, each in vars(module).items() if re.fullmatch(r"TestInductorOpInfo\w+", name))
        return {f"TestInductorOpInfo{DEVICE.upper()}": cases}
    name = f"CommonTemplate{DEVICE.upper()}"
    common = module.check_model if DEVICE == "cpu" else module.check_model_gpu
    made = type(name, (module.TestCase,), {"common": common, "device": DEVICE, "__module__": __name__})
    module.copy_tests(module.CommonTemplate, made, DEVICE)
    return {name: made}


globals().update(classes(suite()))
