"""Functions of PyTorch that the type cuda replaces: rows of torch_openreg._upstream.

Rule: PyTorch's own Python code runs. A function of PyTorch is replaced only if there is no other way. Each reason is of
one of the KINDS:

- "taken at import": a module took the function or constant from torch._C, so that a supplied attribute has no effect.
- "compiled out": the C++ code for CUDA behind the function, which a CPU build does not have.
- "no version of CUDA": the function reads torch.version.cuda, which stays None.
- "other libraries": the function asks NVML about real GPUs, or gives addresses to libraries that use a real GPU.
- "code for GPUs": the function takes kernels that were compiled for a real GPU.
- "the CPU's kernels": the function answers for CUDA's kernels, and the CPU's kernels run here.
"""

from __future__ import annotations

from torch_openreg._upstream import Replaced

# Kind of reason -> what PyTorch would need.
KINDS = {
    "taken at import": "the module asks torch._C when it is called",
    "compiled out": "the part for CUDA is behind a registry that every build has",
    "no version of CUDA": "the function asks what it needs to know, and not for the version",
    "other libraries": "the function asks the device's hooks",
    "code for GPUs": "a backend is asked which kernels of other libraries it takes",
    "the CPU's kernels": "the function asks the device, and not the type's name",
}


def _row(owner: str, name: str, ours: str, why: str, wraps: bool = False) -> Replaced:
    return Replaced(owner, name, f"torch_openreg._cuda.{ours}", why, KINDS[why.partition(": ")[0]], wraps)


_NVML = "other libraries: NVML knows only the GPUs of the machine"
_NO_NCCL = "taken at import: torch.distributed looked for ProcessGroupNCCL, which is compiled out"
_CUPTI = "without CUPTI, PyTorch's C++ does not list CUDA, but Kineto accepts CUDA's events"
_STORAGE = "compiled out: the part for CUDA of a method of torch._C.StorageBase"
_TAKEN = "taken at import: from torch._C"
_ADDRESS = "other libraries: they would get an address of the simulated device, and expect an address of a GPU"
_TRITON = "the CPU's kernels: inductor chooses by the name cuda what is fast or exact in Triton, and generates C++ here"

# PyTorch's own _device_count_nvml() calls the first two functions, and reads CUDA_VISIBLE_DEVICES.
AT_START = (
    _row("torch.cuda", "_raw_device_count_nvml", "_device:_raw_device_count", _NVML),
    _row("torch.cuda", "_raw_device_uuid_nvml", "_device:_raw_device_uuids", _NVML),
    _row(
        "torch._meta_registrations",
        "device_hint",
        "_missing:_device_hint",
        "the CPU's kernels: PyTorch's meta functions ask it for the layout of a result, as of svd or rfftn. Compiled "
        "code relies on that layout",
        wraps=True,
    ),
    _row(
        "torch.cuda",
        "_compile_kernel",
        "_missing:_compile_kernel",
        "no version of CUDA: PyTorch's function reads it to find NVRTC, and fails with an AttributeError",
    ),
    _row(
        "torch.cuda",
        "_get_pynvml_handler",
        "_missing:_get_pynvml_handler",
        f"{_NVML}; as if NVML were not installed",
    ),
    _row("torch.cuda", "device_memory_used", "_missing:_device_memory_used", _NVML),
    _row("torch.cuda", "list_gpu_processes", "_missing:_list_gpu_processes", _NVML),
    _row("torch.cuda.memory", "list_gpu_processes", "_missing:_list_gpu_processes", _NVML),
    _row("torch.cuda", "memory_usage", "_missing:_memory_usage", _NVML),
    _row("torch.cuda", "utilization", "_missing:_utilization", _NVML),
    _row(
        "torch.cuda.nccl",
        "is_available",
        "_missing:_no",
        "compiled out: NCCL. Each backward of DataParallel would warn that it is missing, and then add the gradients "
        "without it",
    ),
    _row(
        "torch.backends.cudnn",
        "is_acceptable",
        "_missing:_no",
        "compiled out: cuDNN. Each recurrent network would be told to rebuild PyTorch with cuDNN, which would not help",
    ),
    _row("torch.autograd", "_supported_activities", "_profiler:_supported_activities", f"compiled out: {_CUPTI}"),
    _row(
        "torch.autograd.profiler",
        "_supported_activities",
        "_profiler:_supported_activities",
        f"taken at import: {_CUPTI}",
    ),
    _row(
        "torch.autograd.profiler",
        "emit_nvtx",
        "_profiler:emit_nvtx",
        "compiled out: the profiler's calls of NVTX (torch/csrc/profiler/stubs/cuda.cpp). Without them, PyTorch's "
        "class would only end the recording of TORCH_OPENREG_TRACE, because it starts a second profiler",
    ),
    _row(
        "torch._C",
        "_construct_storage_from_data_pointer",
        "_graphs:construct_storage",
        "the CPU's kernels: they need a storage of the device's class, and graph trees make plain ones with this function",
        wraps=True,
    ),
    # Since 2.14 CUDAGraph.debug_dump() calls it.
    _row("torch.cuda.graphs", "_dump_graph_dot", "_graphs:dump_graph_dot", _ADDRESS),
    _row("torch:UntypedStorage", "__new__", "_storage:new", _STORAGE),
    _row("torch:UntypedStorage", "resize_", "_storage:_resize_", _STORAGE),
    _row("torch:UntypedStorage", "_share_cuda_", "_storage:_share_cuda_", _STORAGE),
    _row("torch:UntypedStorage", "_new_shared_cuda", "_storage:new_shared_cuda", _STORAGE),
    _row("torch:UntypedStorage", "_release_ipc_counter_cuda", "_storage:release_ipc_counter_cuda", _STORAGE),
    _row("torch.utils.dlpack", "to_dlpack", "_storage:_to_dlpack", _TAKEN),
    _row("torch", "to_dlpack", "_storage:_to_dlpack", _TAKEN),
    _row("torch:Tensor", "__dlpack__", "_storage:dlpack", _ADDRESS, wraps=True),
    _row("torch:Tensor", "__cuda_array_interface__", "_storage:cuda_array_interface", _ADDRESS),
)
DISTRIBUTED = (
    _row("torch.distributed.distributed_c10d", "_NCCL_AVAILABLE", "_distributed:AVAILABLE", _NO_NCCL),
    _row("torch.distributed.distributed_c10d", "ProcessGroupNCCL", "_distributed:ProcessGroupOCCL", _NO_NCCL),
    _row("torch.distributed", "ProcessGroupNCCL", "_distributed:ProcessGroupOCCL", _NO_NCCL),
    _row(
        "torch.distributed:ProcessGroup",
        "_register_backend",
        "_distributed:register_backend",
        "compiled out: gloo's code for CUDA tensors. The rest of gloo would read device memory on the host, so a "
        "group of gloo has this device's backend beside gloo",
        wraps=True,
    ),
    _row(
        "torch.nn.parallel:DistributedDataParallel",
        "_check_comm_hook",
        "_distributed:check_comm_hook",
        "no version of CUDA: it refuses the hooks bf16_compress_* by their names",
        wraps=True,
    ),
    _row("torch.distributed.distributed_c10d", "default_pg_nccl_timeout", "_distributed:TIMEOUT", _NO_NCCL),
)
INDUCTOR = (
    _row("torch._inductor.config", "cuda_backend", "_inductor:BACKEND", _TRITON),
    _row(
        "torch._inductor.async_compile:AsyncCompile",
        "wakeup",
        "_inductor:start_no_worker",
        "the CPU's kernels: for tensors of this name inductor starts a process that compiles Triton. It imports torch "
        "again, and the program waits for it at its end",
    ),
    _row(
        "torch._inductor.scheduler:Scheduler",
        "should_partition",
        "_inductor:partitioned_as_gpu",
        "the CPU's kernels: inductor's is_gpu() is False for a device without Triton, and graphs have the nodes of GPUs",
        wraps=True,
    ),
    _row(
        "torch._inductor.fx_passes.joint_graph",
        "replace_random_passes",
        "_inductor:not_aligned",
        "the CPU's kernels: align_random_eager gives the numbers of CUDA's generator, in Triton",
        wraps=True,
    ),
    _row(
        "torch._inductor.lowering:lowerings",
        "torch._inductor.inductor_prims:random",
        "_inductor:not_aligned",
        "the CPU's kernels: align_random_eager gives the numbers of CUDA's generator, in Triton",
        wraps=True,
    ),
    _row(
        "torch._inductor.fx_passes.fuse_attention",
        "_sfdp_params_check",
        "_inductor:fused_without_tf32",
        "the CPU's kernels: attention in float32 is not fused if TensorFloat-32 is off, and they compute in float32",
        wraps=True,
    ),
)
# Triton takes torch.cuda.is_available() for a GPU, and then looks for libcuda.so.
TRITON = (
    _row(
        "triton.backends.nvidia.driver:CudaDriver",
        "is_active",
        "_missing:_is_active",
        "other libraries: Triton's driver for NVIDIA's GPUs looks for their driver. This device has a driver of its own",
    ),
)
EXTENSIONS = (
    _row(
        "torch.utils.cpp_extension",
        "_join_cuda_home",
        "_extensions:join_cuda_home",
        "no version of CUDA: without it PyTorch looks for no toolkit. This device has headers and libraries of its own",
    ),
    _row(
        "torch.utils.cpp_extension",
        "include_paths",
        "_extensions:include_paths",
        "compiled out: a CPU build has CUDA's headers, without those of the toolkit that they include",
        wraps=True,
    ),
    _row(
        "torch.utils.cpp_extension",
        "_is_cuda_file",
        "_extensions:is_cuda_file",
        "no version of CUDA: PyTorch finds the folder of our headers, and would look there for nvcc",
        wraps=True,
    ),
)
# In C++, by symbols that libraries find before PyTorch's (csrc/GpuCode.cpp).
IN_CPP = (
    _row(
        "torch:Library",
        "_impl, torch_library_impl, aoti_torch_library_impl",
        "csrc:GpuCode.cpp",
        "code for GPUs: other libraries register such kernels, and the dispatcher would prefer them to the fallback",
        wraps=True,
    ),
)
# Since 2.15 the list has the devices whose interface says `is_gpu()`. Before, it has "cuda".
ELSEWHERE = (_row("torch._inductor.utils", "GPU_TYPES", "_inductor:patch_inductor", _TRITON),)
ROWS = AT_START + DISTRIBUTED + INDUCTOR + TRITON + EXTENSIONS + IN_CPP + ELSEWHERE
