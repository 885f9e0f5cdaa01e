#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>

#include <atomic>
#include <typeinfo>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"

// The hooks that CUDA has besides those of every accelerator.
namespace c10::openreg {

// The size of the cache of a device's FFT plans, as the program has set it.
OPENREG_API std::atomic<int64_t>& max_fft_plans(DeviceIndex device);

struct CudaHooks : public at::CUDAHooksInterface {
  bool hasCUDA() const override {
    return isAvailable();
  }
  bool hasCUDART() const override {
    return true;
  }
  DeviceIndex current_device() const override {
    return getCurrentDevice();
  }
  int getNumGPUs() const override {
    return deviceCount();
  }
  void deviceSynchronize(DeviceIndex device) const override {
    device_synchronize(device);
  }
  at::Allocator* getCUDADeviceAllocator() const override {
    return c10::GetAllocator(DeviceType::CUDA);
  }
  // No plans are kept, so a cache of any size is empty.
  int64_t cuFFTGetPlanCacheMaxSize(DeviceIndex device) const override {
    return max_fft_plans(device);
  }
  void cuFFTSetPlanCacheMaxSize(DeviceIndex device, int64_t size) const override {
    TORCH_CHECK(size >= 0, "cuFFT plan cache size must be non-negative, but got ", size);
    max_fft_plans(device) = size;
  }
  int64_t cuFFTGetPlanCacheSize(DeviceIndex device) const override {
    max_fft_plans(device); // raises for a wrong device
    return 0;
  }
  void cuFFTClearPlanCache(DeviceIndex device) const override {
    max_fft_plans(device);
  }
  std::string showConfig() const override {
    return "  - Simulated CUDA devices of torch_openreg (TORCH_OPENREG_AS=cuda)\n";
  }
  virtual void resizeBytes(const c10::Storage& storage, size_t size) const = 0;
};

// Why the hooks could not be given to PyTorch; null after a success.
OPENREG_API extern const char* cuda_hooks_failure;

// LITERALINCLUDE START: HOOKS IN PLACE
// PyTorch makes the object with CUDA's hooks when it first calls one of them, and keeps the object until the process
// ends. `import torch` calls a hook before it loads any backend. In a CPU build PyTorch has made a stub: an object of
// the interface's own class, without a member. The hooks of this device have no member either. They are constructed at
// the address of the stub. Every reference that PyTorch holds then leads to them. The destructor is virtual, so PyTorch
// runs theirs at exit. If PyTorch holds anything else, such as the hooks of a real CUDA, nothing is changed.
template <class Hooks>
void register_cuda_hooks(const Hooks* hooks) {
  static_assert(sizeof(Hooks) == sizeof(at::CUDAHooksInterface) && alignof(Hooks) == alignof(at::CUDAHooksInterface));
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*)); // the virtual table, and no data
  auto& stub = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (typeid(stub) == typeid(at::CUDAHooksInterface)) {
    new (&stub) Hooks(*hooks);
  } else {
    cuda_hooks_failure = "another library has given PyTorch CUDA's hooks";
  }
  delete hooks;
}
// LITERALINCLUDE END: HOOKS IN PLACE

} // namespace c10::openreg
