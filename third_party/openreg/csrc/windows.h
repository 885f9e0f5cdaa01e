#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openreg.h"

namespace openreg {

// The address space of all devices, reserved once:
//
//     base                     base + span                base + 2 * span
//     | device 0 | device 1 |..| device 0 | device 1 |....|
//       device windows            kernel windows
//
// Device windows are never accessible (orMemoryUnprotect aside). A kernel window is accessible exactly where the device
// has an allocation, so that a kernel that uses freed memory faults too.
//
// Before the start and in a forked child there are no windows: every question below is then answered "no", and
// pointers come back unchanged.
struct Windows {
  std::atomic<uintptr_t> base;
  std::atomic<size_t> span; // set after base, and read before it: 0 until there are windows
  size_t window;            // bytes of one device's window
  uintptr_t inherited;      // in a forked child: the base before the fork, for the fault handler
  size_t inheritedSpan;

  size_t offsetIfDevice(uintptr_t address, size_t& distance) const {
    distance = span.load(std::memory_order_acquire);
    return address - base.load(std::memory_order_relaxed);
  }

  bool containsDevice(uintptr_t address) const {
    size_t distance;
    return offsetIfDevice(address, distance) < distance;
  }

  bool containsKernel(uintptr_t address) const {
    size_t distance;
    return offsetIfDevice(address, distance) - distance < distance;
  }

  // Of an address in either kind of window.
  int deviceOf(uintptr_t address) const {
    size_t distance;
    const size_t offset = offsetIfDevice(address, distance);
    return static_cast<int>((offset < distance ? offset : offset - distance) / window);
  }

  uintptr_t toKernel(uintptr_t address) const {
    size_t distance;
    return offsetIfDevice(address, distance) < distance ? address + distance : address;
  }

  uintptr_t toDevice(uintptr_t address) const {
    size_t distance;
    return offsetIfDevice(address, distance) - distance < distance ? address - distance : address;
  }
};

extern constinit Windows windows;

constexpr size_t kPageSize = 4096;
constexpr size_t kHugePageSize = size_t{2} << 20;

constexpr size_t roundUp(size_t size, size_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

// Reserves the windows of `devices` devices. On failure the message names RLIMIT_AS and OPENREG_DEVICE_MEMORY.
orError_t reserveWindows(int devices, size_t capacity);

// In a forked child: MADV_DONTFORK left none of the windows there, and the child's own mappings may take their place.
void forgetWindows();

// Makes a page-aligned range of a device accessible to kernels. On failure the message names the system's limits.
orError_t commit(uintptr_t devAddress, size_t size);

// The opposite: gives the pages back, and makes the range inaccessible. `shared` if mapShared() was used on it. Returns
// false if the system refused, in which case the range must not be used again.
bool decommit(uintptr_t devAddress, size_t size, bool shared);

// Backs a range by the file `fd`, for kernels. What backed it before is gone.
bool mapShared(uintptr_t devAddress, size_t size, int fd);

// Makes the device window of a range that the file `fd` backs accessible or not.
bool setHostAccess(uintptr_t devAddress, size_t size, int fd, bool accessible);

// Makes a committed range read-only for kernels, or writable again.
bool setWritable(uintptr_t devAddress, size_t size, bool writable);

} // namespace openreg
