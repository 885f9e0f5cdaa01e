#pragma once

#include <c10/core/Device.h>

#include <atomic>

#include "OpenRegException.h"

// Devices, and the current device of the calling thread.
//
// Rule: the current device lives in the device's runtime (orSetDevice), nowhere else. A second copy on this side would
// disagree with it as soon as C code calls orSetDevice.
namespace c10::openreg {

// The number of visible devices; 0, with a warning once, when the device cannot be used. Never throws: PyTorch asks
// from places that cannot handle an exception.
OPENREG_API DeviceIndex device_count() noexcept;

OPENREG_API DeviceIndex current_device();

// Throws when `device` is not in [0, device_count()).
OPENREG_API void set_device(DeviceIndex device);

// Both return the previous device; a negative `device` changes nothing and returns -1. A device here is a simulated one
// without a context to create, so "maybe" has nothing to save: it exists because torch.accelerator asks for it.
OPENREG_API DeviceIndex exchange_device(DeviceIndex device);
OPENREG_API DeviceIndex maybe_exchange_device(DeviceIndex device);

// Makes `device` current for a scope; a negative one changes nothing.
class CurrentDevice {
 public:
  explicit CurrentDevice(DeviceIndex device) : previous_(exchange_device(device)) {}
  ~CurrentDevice() {
    if (previous_ >= 0) {
      orSetDevice(previous_); // a destructor has nowhere to report to
    }
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;

 private:
  DeviceIndex previous_;
};

// Waits for all work of `device` (default: the current one).
OPENREG_API void device_synchronize(DeviceIndex device = -1);

// What `import torch` need not pay for: `fn` runs once, before the first memory of a device exists or when PyTorch asks
// for the device to be initialised, whichever comes first. To be called while the library loads.
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

// torch.openreg.set_sync_debug_mode(): whether the host may wait for the device without being told of it.
enum class SyncDebugMode { Default, Warn, Error };
OPENREG_API extern std::atomic<SyncDebugMode> sync_debug_mode;
OPENREG_API void warn_or_error_on_sync();

// To be called where CUDA calls its own: before the host waits for a stream's work inside of another operation, and in
// Stream.synchronize(), but not where a program asks for nothing but to wait (events, devices).
inline void note_synchronization() {
  if (C10_UNLIKELY(sync_debug_mode.load(std::memory_order_relaxed) != SyncDebugMode::Default)) {
    warn_or_error_on_sync();
  }
}

// Throws CUDA's sentence in a child that was forked after the device was used: its memory is not there. Whatever touches
// memory without a call to the device, which would refuse by itself, must ask first.
inline void check_not_forked() {
  if (C10_UNLIKELY(orIsInBadFork())) {
    device_synchronize();
  }
}

// Throws "The device index is out of range. ..." unless `device` is in [0, device_count()).
OPENREG_API void check_device_index(int64_t device);

// `device` with an index: the current device where it has none.
OPENREG_API Device with_index(Device device);

} // namespace c10::openreg
