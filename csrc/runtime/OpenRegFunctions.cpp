#include "runtime/OpenRegFunctions.h"

#include <vector>
#include "runtime/OpenRegIdentity.h"

#include "runtime/OpenRegMutex.h"
#include "runtime/OpenRegTrace.h"

namespace c10::openreg {
namespace {

ForkSafeMutex start_mutex;
std::atomic<int> counted_devices{-1}; // -1: not counted yet

std::vector<void (*)()>& start_functions() {
  static std::vector<void (*)()> functions;
  return functions;
}

} // namespace

DeviceIndex device_count() noexcept {
  // The devices are counted once: as with CUDA_VISIBLE_DEVICES, later changes of the environment have no effect. Only
  // forget_device_count() makes this function count again.
  const int known = counted_devices.load(std::memory_order_relaxed);
  if (C10_LIKELY(known >= 0)) {
    return static_cast<DeviceIndex>(known);
  }
  int count = 0;
  try {
    OPENREG_CHECK(orGetDeviceCount(&count));
  } catch (const c10::Error& error) {
    TORCH_WARN(identity.no_device, error.msg());
    count = 0;
  }
  counted_devices.store(count, std::memory_order_relaxed);
  return static_cast<DeviceIndex>(count);
}

void forget_device_count() {
  counted_devices = -1;
}

DeviceIndex current_device() {
  int device = -1;
  OPENREG_CHECK(orGetDevice(&device));
  return static_cast<DeviceIndex>(device);
}

// Out of line, so that check_device_index() stays short: every allocation calls it.
C10_NOINLINE static void throw_index_error(int64_t device) {
  int count = device_count();
  if (count == 0) {
    OPENREG_CHECK(orGetDeviceCount(&count)); // throws an error that says why there is no device
  }
  throw c10::AcceleratorError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
      orErrorInvalidDevice,
      c10::str(identity.invalid_index, "It must be in [0, ", count, "), but got ", device, "."));
}

void check_device_index(int64_t device) {
  if (C10_UNLIKELY(device < 0 || device >= device_count())) {
    throw_index_error(device);
  }
}

void set_device(DeviceIndex device) {
  check_not_forked();
  check_device_index(device);
  OPENREG_CHECK(orSetDevice(device));
}

DeviceIndex exchange_device(DeviceIndex device) {
  if (device < 0) {
    return -1;
  }
  const DeviceIndex previous = current_device();
  if (device != previous) {
    set_device(device);
  }
  return previous;
}

DeviceIndex maybe_exchange_device(DeviceIndex device) {
  return exchange_device(device);
}

void device_synchronize(DeviceIndex device) {
  const CurrentDevice current(device);
  trace([](const auto& tracer) { tracer.trace_gpu_device_synchronization(identity.type); });
  OPENREG_CHECK(orDeviceSynchronize());
}

void on_start(void (*fn)()) {
  start_functions().push_back(fn);
}

std::atomic<bool> detail::started{false};

void detail::run_on_start() {
  const std::lock_guard lock(start_mutex);
  if (!started.load(std::memory_order_relaxed)) {
    for (const auto fn : start_functions()) {
      fn();
    }
    started.store(true, std::memory_order_release);
  }
}

std::atomic<SyncDebugMode> sync_debug_mode{SyncDebugMode::Default};

void warn_or_error_on_sync() {
  TORCH_CHECK(
      sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Error,
      "called a synchronizing ",
      identity.name,
      " operation");
  TORCH_WARN("called a synchronizing ", identity.name, " operation");
}

Device with_index(Device device) {
  return device.has_index() ? device : Device(device.type(), current_device());
}

} // namespace c10::openreg
