"""When torch.compile needs this folder's code generator, and Triton its driver: rows for torch_openreg._loader."""

from __future__ import annotations

from types import ModuleType

import torch
from torch._C import DispatchKey

from torch_openreg._identity import device_type

COMPILER = (
    ("torch._decomp.decompositions", "torch_openreg.simulator._compiler:decompose_recurrent_layers"),
    ("torch._dynamo.device_interface", "torch_openreg.simulator.inductor:register_convolutions"),
    ("torch._inductor.codegen.common", "torch_openreg.simulator.inductor:register_with_inductor"),
    ("torch._inductor.compile_fx", "torch_openreg.simulator.inductor._differences:patch_inductor"),
    ("torch._inductor.cudagraph_trees", "torch_openreg.openreg.sanitizer:check_kept_results"),
    ("torch._dynamo.trace_rules", "torch_openreg.simulator.triton:leave_out"),
    ("triton.knobs", "torch_openreg.simulator.triton:interpret_if_asked"),
    ("triton.backends", "torch_openreg.simulator.triton._driver:add_driver"),
    ("triton.runtime.jit", "torch_openreg.simulator.triton:patch_launches"),
    ("triton.runtime.autotuner", "torch_openreg.simulator.triton:patch_autotuner"),
    ("triton.runtime.interpreter", "torch_openreg.simulator.triton:patch_interpreter"),
)


def decompose_recurrent_layers(decompositions: ModuleType) -> None:
    """Decomposes lstm() and gru() in a trace as PyTorch does it for every device that has no kernels for them.

    The device's kernels run the CPU's layers in inference (RecurrentLayers.h), which a trace cannot look into.
    """
    key = torch._C._dispatch_key_for_device(device_type)
    aten = torch.ops.aten
    for op, decomposition in ((aten.lstm.input, decompositions.lstm_impl), (aten.gru.input, decompositions.gru_impl)):
        for each in (key, f"Autograd{key}"):
            op.py_impl(getattr(DispatchKey, each))(decomposition)
