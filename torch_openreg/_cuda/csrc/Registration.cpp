#define USE_KINETO // Kineto's headers need it
#include "CudaGuard.h"
#include "profiler/Kineto.h"
#include "profiler/ProfilerStubs.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "runtime/memory/OpenRegHostAllocator.h"

// Gives PyTorch the runtime of the device as that of the type cuda: csrc/runtime/OpenRegRegistration.cpp and
// csrc/profiler/Registration.cpp do this for PrivateUse1. The storages that Python asks for are plain StorageImpl
// objects, as on CUDA.
namespace c10::openreg {
namespace {

C10_REGISTER_GUARD_IMPL(CUDA, CudaGuardImpl);
REGISTER_ALLOCATOR(DeviceType::CUDA, device_allocator());
REGISTER_HOST_ALLOCATOR(DeviceType::CUDA, host_allocator());

const bool registered = [] {
  torch::profiler::impl::registerCUDAMethods(profiler_stubs());
  // PyTorch gives Kineto the plugins of PrivateUse1 devices only.
  libkineto::api().registerProfilerFactory([] { return std::make_unique<OpenRegProfiler>(); });
  return true;
}();

} // namespace

void CudaGuardImpl::record(void** event, const Stream& stream, const DeviceIndex device, const EventFlag flag) const {
  if (stream.id() < 0) { // no stream, but the handle that set_handle() passes
    *event = reinterpret_cast<void*>(-stream.id());
  } else {
    OpenRegGuardImpl::record(event, stream, device, flag);
  }
}

void set_handle(Event& event, orEvent_t handle, DeviceIndex device) {
  TORCH_INTERNAL_ASSERT(!event.eventId(), "The event already has a handle.");
  const auto id = reinterpret_cast<StreamId>(handle);
  TORCH_INTERNAL_ASSERT(id > 0);
  event.record(Stream(Stream::UNSAFE, Device(DeviceType::CUDA, device), -id));
}

} // namespace c10::openreg
