#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "openreg.h"

// The two address ranges of each device: the device window, whose addresses orMalloc returns, and the kernel window,
// through which kernels reach the same bytes.
namespace openreg {

// The address space of all devices. It is reserved once:
//
//     base                     base + span                base + 2 * span
//     | device 0 | device 1 |..| device 0 | device 1 |....|
//       device windows            kernel windows
//
// A device window is not accessible, except after orMemoryUnprotect. A kernel window is accessible in the pages of the
// device's allocations only. So a kernel that uses freed memory faults too.
//
// Before the start, and in a forked child, there are no windows. Then contains...() returns false, and to...() returns
// the address unchanged.
struct Windows {
  std::atomic<uintptr_t> base;
  std::atomic<size_t> span; // set after `base` and read before it; 0 while there are no windows
  size_t window;            // bytes of the window of one device
  uintptr_t inherited;      // in a forked child: `base` before the fork, for the SIGSEGV handler
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

  // The device of an address in a device window or a kernel window.
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

// Reserves the windows of `devices` devices. The message of a failure names RLIMIT_AS and OPENREG_DEVICE_MEMORY.
orError_t reserveWindows(int devices, size_t capacity);

// To be called in a forked child. Because of MADV_DONTFORK the child does not have the windows, and may map other
// memory at their addresses.
void forgetWindows();

// Makes a page-aligned range of a device accessible to kernels. The message of a failure names the system's limits.
orError_t commit(uintptr_t devAddress, size_t size);

// Undoes commit(): gives the pages back, and makes the range inaccessible. `shared`: whether mapShared() was called for
// the range. Returns false if the system refused; then the range must not be used again.
bool decommit(uintptr_t devAddress, size_t size, bool shared);

// Maps the file `fd` into a range of the kernel window. The bytes that were there before are lost.
bool mapShared(uintptr_t devAddress, size_t size, int fd);

// Makes the device window of a range accessible to the host, or inaccessible. The file `fd` backs the range.
bool setHostAccess(uintptr_t devAddress, size_t size, int fd, bool accessible);

} // namespace openreg
