#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <optional>

// Out of memory: the observers that are called first, and the message of torch.OutOfMemoryError.
namespace c10::openreg {

// Called before an allocation fails, with the device, the bytes asked for, the bytes that the process may have, and the
// device's free bytes.
using OutOfMemoryObserver = std::function<void(int64_t device, size_t size, size_t total, size_t free)>;

// What the message of torch.OutOfMemoryError says. All sizes are in bytes.
struct OutOfMemory {
  DeviceIndex device;
  size_t requested;
  size_t device_free;
  size_t device_total;
  std::optional<size_t>
      allowed; // how much the process may reserve, if that was limited (set_per_process_memory_fraction)
  size_t allocated;
  size_t reserved;
  size_t reserved_by_private_pools;
};

[[noreturn]] void throw_out_of_memory(const OutOfMemory& facts);

} // namespace c10::openreg
