#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "runtime/OpenRegException.h"

// Devices, and the current device of the calling thread.
//
// Rule: the current device is kept in the device library (orSetDevice), and nowhere else. A second copy in this library
// would be wrong as soon as C code calls orSetDevice.
namespace c10::openreg {

// The number of visible devices. If the device cannot be used, the result is 0, and the first call warns. Never throws:
// PyTorch asks from places that cannot handle an exception.
OPENREG_API DeviceIndex device_count() noexcept;

// Lets device_count() count again. To be called after the number of devices was changed, before the device starts.
OPENREG_API void forget_device_count();

OPENREG_API DeviceIndex current_device();

// The largest number of devices that a process may have: OPENREG_DEVICE_COUNT's limit.
constexpr int kMaxDevices = 64;

// Throws when `device` is not in [0, device_count()).
OPENREG_API void set_device(DeviceIndex device);

// Both functions make `device` current, and return the device that was current before. A negative `device` changes
// nothing; the result is then -1. CUDA's "maybe" form does not create a context on the device. This device has
// no context, so here both functions do the same. torch.accelerator calls maybe_exchange_device().
OPENREG_API DeviceIndex exchange_device(DeviceIndex device);
OPENREG_API DeviceIndex maybe_exchange_device(DeviceIndex device);

// Makes `device` current until the end of the scope. A negative `device` changes nothing.
class CurrentDevice {
 public:
  explicit CurrentDevice(DeviceIndex device) : previous_(exchange_device(device)) {}
  ~CurrentDevice() {
    if (previous_ >= 0) {
      orSetDevice(previous_); // a destructor cannot report an error
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  DeviceIndex previous_;
};

// Waits for all work of `device`, by default of the current device.
OPENREG_API void device_synchronize(DeviceIndex device = -1);

// Registers work that is done when the device starts, so that `import torch` stays fast. `fn` runs once: before the
// first memory of a device is allocated, or when PyTorch initialises the device (torch.openreg.init()). Must be called
// while the library loads.
void on_start(void (*fn)());

namespace detail {
OPENREG_API extern std::atomic<bool> started;
OPENREG_API void run_on_start();
} // namespace detail

inline void start() {
  if (C10_UNLIKELY(!detail::started.load(std::memory_order_acquire))) {
    detail::run_on_start();
  }
}

// torch.openreg.set_sync_debug_mode(): what happens if an operation makes the host wait for the device.
enum class SyncDebugMode { Default, Warn, Error };
OPENREG_API extern std::atomic<SyncDebugMode> sync_debug_mode;
OPENREG_API void warn_or_error_on_sync();

// Warns or throws, as set_sync_debug_mode() chose. Called in the places in which CUDA's backend calls its function
// warn_or_error_on_sync(): before the host waits for a stream inside another operation, and in Stream.synchronize().
// Event.synchronize() and torch.openreg.synchronize() do not call note_synchronization().
inline void note_synchronization() {
  if (C10_UNLIKELY(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default)) {
    warn_or_error_on_sync();
  }
}

// Throws, as CUDA does, in a child that was forked after the device was used: the child does not have the device's
// memory. The functions of the device's C API refuse such a child themselves. Code that uses device memory without
// these functions must call check_not_forked() first.
inline void check_not_forked() {
  if (C10_UNLIKELY(orIsInBadFork())) {
    device_synchronize();
  }
}

// Throws "The device index is out of range. ..." unless `device` is in [0, device_count()).
OPENREG_API void check_device_index(int64_t device);

// `device` itself if it has an index, else the current device.
OPENREG_API Device with_index(Device device);

} // namespace c10::openreg
