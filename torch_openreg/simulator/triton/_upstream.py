"""Functions of Triton that this folder wraps: rows of torch_openreg._upstream. This source serves Triton 3.7 to 3.9."""

from __future__ import annotations

from torch_openreg._upstream import Replaced

_HERE = "torch_openreg.simulator.triton"
_COPIES = (
    "Triton's interpreter copies the storages of all tensors to the host and back. The device's kernels reach the same "
    "bytes without a copy, within the kernel scope, as PyTorch's kernels do."
)
_ADDRESSES = (
    "A kernel computes with addresses of the device, as on a GPU. They become addresses of the host where the "
    "interpreter uses them, which is also the place to check them, and to tell the sanitizer of them."
)
_MEMORY = "the interpreter asks the driver for the memory of a tensor"
_ACCESS = "the interpreter asks the driver to read and write"

LAUNCHES = (
    Replaced(
        "triton.runtime.jit:JITFunction",
        "run",
        f"{_HERE}:launch",
        "Without Triton's interpreter a launch raises one sentence. Otherwise the kernel would be compiled first.",
        "Triton asks the driver before it compiles",
    ),
)
INTERPRETER = (
    Replaced("triton.runtime.interpreter:GridExecutor", "__call__", f"{_HERE}._interpreter:execute", _COPIES, _MEMORY),
    Replaced(
        "triton.runtime.interpreter:GridExecutor", "_init_args_hst", f"{_HERE}._interpreter:operands", _COPIES, _MEMORY
    ),
    Replaced(
        "triton.runtime.interpreter:GridExecutor",
        "_restore_args_dev",
        f"{_HERE}._interpreter:copy_back",
        _COPIES,
        _MEMORY,
    ),
    Replaced(
        "triton.runtime.interpreter:InterpreterBuilder",
        "create_int_to_ptr",
        f"{_HERE}._interpreter:integer_to_pointer",
        "A kernel may load addresses from memory. Only then may it leave the memory of its tensors.",
        _ACCESS,
    ),
    *(
        Replaced("triton._C.libtriton:interpreter", name, f"{_HERE}._interpreter:{name}", _ADDRESSES, _ACCESS)
        for name in ("load", "store", "atomic_rmw", "atomic_cas")
    ),
)
AUTOTUNER = (
    Replaced(
        "triton.runtime.autotuner:Autotuner",
        "_bench",
        f"{_HERE}._interpreter:first_configuration",
        "Times of the interpreter say nothing about a GPU, and it is slow. So autotune takes the first configuration.",
        "Triton's autotuner asks the driver whether it measures",
    ),
)
ROWS = LAUNCHES + INTERPRETER + AUTOTUNER
