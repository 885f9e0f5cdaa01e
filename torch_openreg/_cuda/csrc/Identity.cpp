#include "runtime/OpenRegIdentity.h"

namespace c10::openreg {

// The device as a GPU of CUDA. The texts are CUDA's: c10/cuda/CUDAFunctions.cpp (driver version 11040 is that of CUDA
// 11.4), CUDACachingAllocator.cpp, CUDAException.cpp, aten/src/ATen/cuda/CUDAGeneratorImpl.h.
constinit const DeviceIdentity identity{
    .type = DeviceType::CUDA,
    .backend = BackendComponent::CUDABit,
    .key = DispatchKey::CUDA,
    .keys = DispatchKeySet(DispatchKey::CUDA),
    .name = "CUDA",
    .device = "CUDA",
    .a_device = "a CUDA",
    .module = "torch_openreg.openreg",
    .properties_class = "_CudaDeviceProperties",
    .uuid_class = "_CUuuid",
    .collectives = "NCCL",
    .no_device = "CUDA initialization: ",
    .old_driver =
        "The NVIDIA driver on your system is too old (found version 11040). Please update your GPU driver by "
        "downloading and installing a new version from the URL: http://www.nvidia.com/Download/index.aspx "
        "Alternatively, go to: https://pytorch.org to install a PyTorch version that has been compiled with your "
        "version of the CUDA driver. ",
    .invalid_index = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?\n",
    .wrong_generator = [](Device) -> std::string { return "Expected a CUDA Generator"; },
    .out_of_memory =
        {.device = "GPU",
         .private_pools = "allocated in private pools (e.g., CUDA Graphs)",
         .process = "Including non-PyTorch memory, this process has",
         .advice =
             "If reserved but unallocated memory is large try setting "
             "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for Memory "
             "Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-"
             "cuda-alloc-conf) The GPU is simulated: OPENREG_DEVICE_MEMORY sets its capacity."},
};

} // namespace c10::openreg
