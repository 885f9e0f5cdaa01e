// Functions that the checks call from Python. Each function calls one of PyTorch's C++ interfaces to a device, as
// libraries of operators, torch.distributed.rpc and PyTorch itself do. `device` is a text such as "npu:1". If the
// interface throws, the function returns kFailed, and error() returns the message.
#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdint>
#include <limits>
#include <string>

namespace {

constexpr int64_t kFailed = std::numeric_limits<int64_t>::min();
thread_local std::string message;

template <class Question>
int64_t answer(const Question& question) {
  try {
    return static_cast<int64_t>(question());
  } catch (const std::exception& error) {
    message = error.what();
    return kFailed;
  }
}

c10::impl::VirtualGuardImpl guard(const char* device) {
  return c10::impl::VirtualGuardImpl(c10::Device(device).type());
}

const at::AcceleratorHooksInterface& hooks(const char* device) {
  return at::globalContext().getAcceleratorHooksInterface(c10::Device(device).type());
}

int64_t copied(const c10::Allocator* allocator, int64_t to, int64_t from, int64_t bytes) {
  TORCH_CHECK(allocator != nullptr, "no allocator is registered");
  allocator->copy_data(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), static_cast<size_t>(bytes));
  return bytes;
}

} // namespace

extern "C" {

const char* error() {
  return message.c_str();
}

// ---- the guard

int64_t guard_device_count(const char* device) {
  return answer([&] { return guard(device).deviceCount(); });
}

int64_t guard_default_stream(const char* device) {
  return answer([&] { return guard(device).getDefaultStream(c10::Device(device)).id(); });
}

int64_t guard_stream_from_pool(const char* device, int64_t high_priority) {
  return answer([&] { return guard(device).getStreamFromGlobalPool(c10::Device(device), high_priority != 0).id(); });
}

// ---- the hooks

int64_t hooks_is_built(const char* device) {
  return answer([&] { return hooks(device).isBuilt(); });
}

int64_t hooks_is_available(const char* device) {
  return answer([&] { return hooks(device).isAvailable(); });
}

int64_t hooks_has_primary_context(const char* device) {
  return answer([&] { return hooks(device).hasPrimaryContext(c10::Device(device).index()); });
}

int64_t hooks_device_count(const char* device) {
  return answer([&] { return hooks(device).deviceCount(); });
}

int64_t hooks_current_device(const char* device) {
  return answer([&] { return hooks(device).getCurrentDevice(); });
}

int64_t hooks_set_current_device(const char* device) {
  return answer([&] { return hooks(device).setCurrentDevice(c10::Device(device).index()), 0; });
}

int64_t hooks_exchange_device(const char* device) {
  return answer([&] { return hooks(device).exchangeDevice(c10::Device(device).index()); });
}

int64_t hooks_maybe_exchange_device(const char* device) {
  return answer([&] { return hooks(device).maybeExchangeDevice(c10::Device(device).index()); });
}

int64_t hooks_default_generators_seed(const char* device) {
  return answer([&] { return at::globalContext().defaultGenerator(c10::Device(device)).current_seed(); });
}

int64_t hooks_device_of_pointer(const char* device, int64_t address) {
  return answer([&] { return hooks(device).getDeviceFromPtr(reinterpret_cast<void*>(address)).index(); });
}

// ---- the allocators

int64_t device_allocator_copy(const char* device, int64_t to, int64_t from, int64_t bytes) {
  return answer([&] { return copied(c10::GetAllocator(c10::Device(device).type()), to, from, bytes); });
}

int64_t host_allocator_copy(const char* device, int64_t to, int64_t from, int64_t bytes) {
  return answer([&] { return copied(at::getHostAllocator(c10::Device(device).type()), to, from, bytes); });
}

// ---- the profiler's stubs of PrivateUse1

int64_t stubs_record() {
  return answer([] {
    c10::DeviceIndex device = -1;
    torch::profiler::impl::ProfilerVoidEventStub event;
    torch::profiler::impl::privateuse1Stubs()->record(&device, &event, nullptr);
    return device;
  });
}

int64_t stubs_enabled() {
  return answer([] { return torch::profiler::impl::privateuse1Stubs()->enabled(); });
}

// The number of devices for which onEachDevice() calls its argument in the order of the indices, with that device as
// the current device.
int64_t stubs_devices() {
  return answer([] {
    int64_t devices = 0;
    const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
    torch::profiler::impl::privateuse1Stubs()->onEachDevice(
        [&](int device) { devices += device == devices && device == guard.getDevice().index(); });
    return devices;
  });
}

int64_t stubs_synchronize() {
  return answer([] { return torch::profiler::impl::privateuse1Stubs()->synchronize(), 0; });
}

} // extern "C"
