#include "CudaHooks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>

#include <array>
#include <atomic>
#include <typeinfo>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegHooks.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace c10::openreg {

const char* cuda_hooks_failure = nullptr;

namespace {

// The hooks of the runtime. They are not registered in this library; CudaHooks passes on the calls.
const OpenRegHooks runtime_hooks;

// The size of the cache of a device's FFT plans, as the program has set it.
std::atomic<int64_t>& max_fft_plans(DeviceIndex device) {
  static auto& sizes = *[] {
    auto* const all = new std::array<std::atomic<int64_t>, kMaxDevices>;
    for (auto& size : *all) {
      size = 4096; // CUDA's default
    }
    return all;
  }();
  check_device_index(device);
  return sizes[device];
}

// The hooks of every accelerator, and those that CUDA has besides.
struct CudaHooks final : public at::CUDAHooksInterface {
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return runtime_hooks.isAvailable();
  }
  bool hasPrimaryContext(DeviceIndex device) const override {
    return runtime_hooks.hasPrimaryContext(device);
  }
  void init() const override {
    runtime_hooks.init();
  }
  DeviceIndex deviceCount() const override {
    return device_count();
  }
  DeviceIndex getCurrentDevice() const override {
    return openreg::current_device(); // qualified: the base class has a function of this name
  }
  void setCurrentDevice(DeviceIndex device) const override {
    set_device(device);
  }
  DeviceIndex exchangeDevice(DeviceIndex device) const override {
    return exchange_device(device);
  }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return maybe_exchange_device(device);
  }
  const at::Generator& getDefaultGenerator(DeviceIndex device) const override {
    return runtime_hooks.getDefaultGenerator(device);
  }
  at::Generator getNewGenerator(DeviceIndex device) const override {
    return runtime_hooks.getNewGenerator(device);
  }
  Device getDeviceFromPtr(void* data) const override {
    return runtime_hooks.getDeviceFromPtr(data);
  }
  bool isPinnedPtr(const void* data) const override {
    return runtime_hooks.isPinnedPtr(data);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return runtime_hooks.getPinnedMemoryAllocator();
  }

  bool hasCUDA() const override {
    return isAvailable();
  }
  bool hasCUDART() const override {
    return true;
  }
  DeviceIndex current_device() const override {
    return openreg::current_device();
  }
  int getNumGPUs() const override {
    return device_count();
  }
  void deviceSynchronize(DeviceIndex device) const override {
    device_synchronize(device);
  }
  at::Allocator* getCUDADeviceAllocator() const override {
    return device_allocator();
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
};

// LITERALINCLUDE START: HOOKS IN PLACE
// PyTorch makes the object with CUDA's hooks when it first calls one of them, and keeps the object until the process
// ends. `import torch` calls a hook before it loads any backend. In a CPU build PyTorch has made a stub: an object of
// the interface's own class, without a member. The hooks of this device have no member either. They are constructed at
// the address of the stub. Every reference that PyTorch holds then leads to them. The destructor is virtual, so PyTorch
// runs theirs at exit. If PyTorch holds anything else, such as the hooks of a real CUDA, nothing is changed.
const bool hooks_are_registered = [] {
  static_assert(
      sizeof(CudaHooks) == sizeof(at::CUDAHooksInterface) && alignof(CudaHooks) == alignof(at::CUDAHooksInterface));
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*)); // the virtual table, and no data
  auto& stub = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (typeid(stub) == typeid(at::CUDAHooksInterface)) {
    new (&stub) CudaHooks;
  } else {
    cuda_hooks_failure = "another library has given PyTorch CUDA's hooks";
  }
  return true;
}();
// LITERALINCLUDE END: HOOKS IN PLACE

} // namespace
} // namespace c10::openreg
