#pragma once

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/Allocator.h>

#include <typeinfo>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegFunctions.h"

// What CUDA's hooks have beside those of every accelerator.
namespace c10::openreg {

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
  std::string showConfig() const override {
    return "  - Simulated CUDA devices of torch_openreg (TORCH_OPENREG_AS=cuda)\n";
  }
  virtual void resizeBytes(const c10::Storage& storage, size_t size) const = 0;
};

// Why PyTorch cannot be given the hooks; null after a success.
OPENREG_API extern const char* cuda_hooks_failure;

// PyTorch makes CUDA's hooks at the first question, keeps them for good, and `import torch` asks before it loads any
// backend. What it made in a CPU build is a stub: an object of the interface's own class, without a member. So the hooks
// of this device, which have no member either, are constructed in the stub's place: every reference to it that PyTorch
// holds now leads here, and the destructor that PyTorch runs at exit is virtual. If PyTorch holds anything else, such as
// the hooks of a real CUDA, nothing is touched.
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

} // namespace c10::openreg
