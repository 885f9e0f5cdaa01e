"""Features of CUDA that the device does not have, and functions of NVML, which knows only the GPUs of the machine.

A call that needs such a feature raises an error whose sentence names the feature. A call that only asks whether the
feature is on answers no. PyTorch raises RuntimeError for a missing library; NotImplementedError is a subclass of it, so
programs that catch RuntimeError catch these errors too.

PyTorch's own Python handles a build without NCCL, cuDNN, GPUDirect Storage and green contexts, so they need nothing
here. Two functions of NCCL and cuDNN are exceptions, because they would print a warning that does not help. One more
function answers for CUDA's kernels, which do not run here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_openreg import _upstream, openreg
from torch_openreg._cuda._upstream import TRITON


def refusal(sentence: str) -> Callable[..., NoReturn]:
    """A function that takes any arguments and raises NotImplementedError with ``sentence``."""

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(sentence)

    return refuse


_no_blas = "is not available: the simulated device computes with the CPU's kernels, without cuBLAS."
_no_tunable = refusal(
    "torch.cuda.tunable is not available: it chooses among the GEMMs of cuBLAS, "
    "which the simulated device does not have."
)


def _enable_tunable(value: bool) -> None:
    if value:
        _no_tunable()


SUPPLIED: dict[str, Any] = {
    "_cuda_getCurrentBlasHandle": refusal(f"torch.cuda.current_blas_handle() {_no_blas}"),
    "_cuda_getCurrentSolverHandle": refusal(
        "torch.cuda.current_solver_handle() is not available: the simulated device computes with the CPU's kernels, "
        "without cuSOLVER."
    ),
    "_cuda_clearCublasWorkspaces": lambda: None,
    **{
        f"_cuda_{verb}{library}WorkspaceSize": refusal(f"The workspace of {library} {_no_blas}")
        for verb in ("get", "set", "reset")
        for library in ("Cublas", "CublasLt")
    },
    "_cuda_jiterator_compile_and_launch_kernel": refusal(
        "torch.cuda.jiterator is not available: it compiles CUDA's C++, which the simulated device does not run."
    ),
    # TunableOp, its tuning and its recording are always off, as on CUDA by default. Switching them off has no effect.
    "_cuda_tunableop_enable": _enable_tunable,
    "_cuda_tunableop_is_enabled": lambda: False,
    "_cuda_tunableop_tuning_enable": _enable_tunable,
    "_cuda_tunableop_tuning_is_enabled": lambda: False,
    "_cuda_tunableop_wildcard_fallback_enable": _enable_tunable,
    "_cuda_tunableop_wildcard_fallback_is_enabled": lambda: False,
    "_cuda_record_untuned_enable": _enable_tunable,
    "_cuda_record_untuned_is_enabled": lambda: False,
    **{
        f"_cuda_tunableop_{name}": _no_tunable
        for name in (
            "get_cublaslt_requested_algo_count",
            "get_filename",
            "get_max_tuning_duration",
            "get_max_tuning_iterations",
            "get_results",
            "get_rotating_buffer_size",
            "get_validators",
            "push_dynamic_dims_mask",
            "read_file",
            "set_cublaslt_requested_algo_count",
            "set_filename",
            "set_max_tuning_duration",
            "set_max_tuning_iterations",
            "set_numerical_check_tolerances",
            "set_rotating_buffer_size",
        )
    },
}


def _get_pynvml_handler(device: Any = None) -> NoReturn:
    raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed or it can't be imported.")


def _list_gpu_processes(device: Any = None) -> str:
    return openreg.list_gpu_processes(device)


def _device_memory_used(device: Any = None) -> int:
    return openreg.device_memory_used(device)


_memory_usage, _utilization = openreg.memory_usage, openreg.utilization


def _device_hint(original: Callable[[Any], str], tensor: Any) -> str:
    device = tensor.fake_device if isinstance(tensor, torch._subclasses.FakeTensor) else tensor.device
    return "cpu" if device.type == "cuda" else original(tensor)


_compile_kernel = refusal(
    "torch.cuda._compile_kernel is not available: it compiles CUDA's C++, which the simulated device does not run."
)


def _no(asked: Any) -> bool:
    return False


def _is_active(*_: Any) -> bool:
    return False


def leave_gpus_out(_: ModuleType) -> None:
    """Lets Triton's driver for NVIDIA's GPUs say that it is not active."""
    _upstream.apply(TRITON)


def disable_triton(config: ModuleType) -> None:
    """Lets torch.utils._triton.has_triton() be False. The package triton comes with every build with CUDA."""
    config.triton_disable_device_detection = True  # type: ignore[attr-defined]
