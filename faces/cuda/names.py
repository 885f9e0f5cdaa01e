"""The table of names with which CMake makes the face ``cuda``, the device under the type cuda, from the sources.

The sources say PrivateUse1, as those of every backend outside PyTorch do. The table gives each identifier of PyTorch
that contains PrivateUse1 the name that a backend inside PyTorch uses. It also replaces some names of this project, the
texts of messages, and one call. The C++ files of this folder hold the larger differences.

    python faces/cuda/names.py SOURCE TARGET FILE...
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "cmake"))

from rename import Names, UnknownName, rename_files

# LITERALINCLUDE START: NAMES OF CUDA
KEYS = ("Autocast", "Autograd", "NestedTensor", "Quantized", "Sparse", "SparseCsr")

NAMES = Names(
    covers="(?i)privateuse",
    identifiers={
        "PrivateUse1": "CUDA",  # DeviceType, DispatchKey, TORCH_LIBRARY_IMPL, C10_REGISTER_GUARD_IMPL
        **{f"{key}PrivateUse1": f"{key}CUDA" for key in KEYS},
        "PrivateUse1Bit": "CUDABit",
        "PrivateUse2": "PrivateUse2",  # stays: ModelRestrictions.cpp uses it as a key without kernels
        "is_privateuseone": "is_cuda",
        "REGISTER_PRIVATEUSE1_DISPATCH": "REGISTER_CUDA_DISPATCH",
        "set_privateuse1_dispatch_ptr": "set_cuda_dispatch_ptr",
        "registerPrivateUse1Methods": "registerCUDAMethods",
        "PRIVATEUSE1_RUNTIME": "CUDA_RUNTIME",
        "PRIVATEUSE1_DRIVER": "CUDA_DRIVER",
        "REGISTER_PRIVATEUSE1_PROFILER": "REGISTER_CUDA_PROFILER",
        "wrapper_PrivateUse1_": "wrapper_CUDA_",
        "resizePrivateUse1Bytes": "resizeBytes",
        "_local_scalar_dense_openreg": "_local_scalar_dense_cuda",
        "_OpenRegDeviceProperties": "_CudaDeviceProperties",
        "_OpenRegUuid": "_CUuuid",
    },
    phrases={
        "<ATen/detail/PrivateUse1HooksInterface.h>": '"CudaHooks.h"',
        "at::PrivateUse1HooksInterface": "CudaHooks",
        "at::RegisterPrivateUse1HooksInterface": "register_cuda_hooks",
        "<torch/csrc/profiler/standalone/privateuse1_profiler.h>": '"CudaKineto.h"',
        '"openreg:{}"': '"cuda:{}"',
        # PyTorch accepts this function for PrivateUse1 only. On this face the storages that Python asks for are plain
        # StorageImpl objects, as on CUDA.
        "c10::SetStorageImplCreate(DeviceType::PrivateUse1, &create)": "static_cast<void>(&create)",
        # Texts of messages. On this face the module is not torch.openreg.
        "torch.openreg.": "torch_openreg.openreg.",
        '"Expected a generator of the openreg device, but got one of ", other->device(), "."': (
            '"Expected a CUDA Generator"'
        ),
        '"The device index is out of range. It must be': (
            r'"CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\nIt must be'
        ),
        "OpenReg out of memory": "CUDA out of memory",
        '". Device "': '". GPU "',
        " reserved in private pools": " allocated in private pools (e.g., CUDA Graphs)",
        " is free. This process has ": " is free. Including non-PyTorch memory, this process has ",
        "Free tensors, use a smaller batch, or set OPENREG_DEVICE_MEMORY higher.": (
            "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
            "to avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/"
            "notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf) The GPU is simulated: "
            "OPENREG_DEVICE_MEMORY sets its capacity."
        ),
        "Cannot re-initialize OpenReg": "Cannot re-initialize CUDA",
        "To use OpenReg with": "To use CUDA with",
        "OpenReg error": "CUDA error",
        # c10/cuda/CUDAFunctions.cpp, device_count() and device_count_impl(). Driver version 11040 is that of CUDA 11.4.
        "torch_openreg finds no device: ": "CUDA initialization: ",
        "The driver on your system is too old: ": (
            "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
            "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
            "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your "
            "version of the CUDA driver. "
        ),
        "synchronizing OpenReg operation": "synchronizing CUDA operation",
        "an openreg device": "a CUDA device",
        "any openreg device": "any CUDA device",
        "the openreg device": "the CUDA device",
        "an openreg tensor": "a CUDA tensor",
        "send openreg tensor": "send CUDA tensor",
        "on openreg tensors": "on CUDA tensors",
        "'openreg' backend": "'CUDA' backend",
    },
)
# LITERALINCLUDE END: NAMES OF CUDA

if __name__ == "__main__":
    source, target, *files = sys.argv[1:]
    try:
        rename_files(Path(source), Path(target), files, NAMES)
    except UnknownName as error:
        sys.exit(f"faces/cuda/names.py has no name on CUDA for:\n{error}")
