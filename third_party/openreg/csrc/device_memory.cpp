#include "device_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <deque>

#include "activity.h"
#include "device.h"
#include "error.h"
#include "graph.h"
#include "hooks.h"
#include "host_limits.h"
#include "memfd.h"
#include "runtime.h"
#include "scheduler.h"
#include "windows.h"

// Device memory: the class that keeps the allocations of one device, and orMalloc, orFree, orMemGetInfo,
// orMemoryUnprotect and orMemoryProtect. An allocation is a range of both windows (windows.h). Its pages are anonymous
// memory at first, and a memfd as soon as the host or another process is to map them too.
namespace openreg {
namespace {

// Never deleted: atexit handlers and destructors of other libraries may still free memory.
std::deque<DeviceMemory>* memories = nullptr;

std::atomic<size_t> guardSize{0};

} // namespace

size_t Allocation::reserved() const {
  return roundUp(size, kPageSize);
}

size_t Allocation::span() const {
  return reserved() + guard;
}

DeviceMemory::DeviceMemory(int device, uintptr_t begin, size_t window, size_t capacity)
    : device_(device), capacity_(capacity), ranges_(begin, window) {}

orError_t DeviceMemory::allocate(size_t size, void** devPtr) {
  if (size > capacity_) { // This check also keeps the rounding below from overflowing.
    return fail(
        orErrorMemoryAllocation,
        "tried to allocate %s on device %d, which has a capacity of %s. Ask for less, or set OPENREG_DEVICE_MEMORY "
        "higher",
        formatBytes(size).c_str(),
        device_,
        formatBytes(capacity_).c_str());
  }
  Allocation allocation{0, size};
  const size_t reserved = allocation.reserved();
  {
    const std::lock_guard lock(mutex_);
    if (used_ + reserved > capacity_) {
      return fail(
          orErrorMemoryAllocation,
          "tried to allocate %s on device %d, which has a capacity of %s of which %s is free. Free memory, or set "
          "OPENREG_DEVICE_MEMORY higher",
          formatBytes(size).c_str(),
          device_,
          formatBytes(capacity_).c_str(),
          formatBytes(capacity_ - used_).c_str());
    }
    allocation.guard = guardSize.load(std::memory_order_relaxed);
    const auto begin = takeRange(allocation);
    if (!begin) {
      return fail(
          orErrorMemoryAllocation,
          "tried to allocate %s on device %d, which has %s free, but not in one piece. Free memory, or set "
          "OPENREG_DEVICE_MEMORY higher",
          formatBytes(size).c_str(),
          device_,
          formatBytes(capacity_ - used_).c_str());
    }
    allocation.begin = *begin;
    allocations_.emplace(*begin, allocation);
    used_ += reserved;
  }
  // The lock is not held here: no other thread knows the range yet.
  orError_t error = chargeHostMemory(reserved);
  if (error == orSuccess && (error = commit(allocation.begin, reserved)) != orSuccess) {
    unchargeHostMemory(reserved);
  }
  if (error != orSuccess) {
    const std::lock_guard lock(mutex_);
    allocations_.erase(allocation.begin);
    ranges_.give(allocation.begin, allocation.span());
    used_ -= reserved;
    return error;
  }
  *devPtr = reinterpret_cast<void*>(allocation.begin);
  return orSuccess;
}

orError_t DeviceMemory::free(uintptr_t begin) {
  AllocationMap<Allocation>::node_type node;
  {
    const std::lock_guard lock(mutex_);
    const auto it = allocations_.find(begin);
    if (it == allocations_.end()) {
      return fail(
          orErrorInvalidValue,
          "%p is not the start of an allocation of device %d: the memory was already freed, or the pointer is inside "
          "an allocation",
          reinterpret_cast<void*>(begin),
          device_);
    }
    if (it->second.openCount > 0) {
      return fail(
          orErrorInvalidValue,
          "%p is memory of another process; orIpcCloseMemHandle closes it",
          reinterpret_cast<void*>(begin));
    }
    node = allocations_.extract(it);
  }
  // The lock is not held here: it takes milliseconds to give back the pages of a large allocation.
  const size_t reserved = node.mapped().reserved();
  const bool reusable = giveBack(node.mapped());
  unchargeHostMemory(reserved);
  const std::lock_guard lock(mutex_);
  used_ -= reserved;
  if (reusable) {
    ranges_.give(begin, node.mapped().span());
  }
  return orSuccess;
}

// Takes addresses for an allocation and its guard. If there is no room for the guard, the allocation gets no guard. To
// be called with the lock held.
std::optional<uintptr_t> DeviceMemory::takeRange(Allocation& allocation) {
  const size_t alignment = allocation.size >= kHugePageSize ? kHugePageSize : kPageSize;
  if (allocation.guard > 0) {
    if (const auto begin = ranges_.take(allocation.span(), alignment)) {
      return begin;
    }
    allocation.guard = 0;
  }
  return ranges_.take(allocation.span(), alignment);
}

// Gives the pages back to the system. Returns whether the range of addresses may be used again.
bool DeviceMemory::giveBack(const Allocation& allocation) {
  const bool reusable = decommit(allocation.begin, allocation.reserved(), allocation.fd >= 0);
  if (allocation.fd >= 0) {
    close(allocation.fd);
  }
  return reusable;
}

// Returns the allocation that starts at `begin`; null after a failure, which fail() has recorded. To be called with the
// lock held.
Allocation* DeviceMemory::allocationAt(uintptr_t begin) {
  const auto it = allocations_.find(begin);
  if (it != allocations_.end()) {
    return &it->second;
  }
  fail(
      orErrorInvalidValue,
      "%p is not the start of an allocation of device %d; pass the pointer that orMalloc returned",
      reinterpret_cast<void*>(begin),
      device_);
  return nullptr;
}

orError_t DeviceMemory::setHostAccess(uintptr_t begin, bool accessible) {
  const std::lock_guard lock(mutex_);
  Allocation* const allocation = allocationAt(begin);
  if (allocation == nullptr) {
    return orErrorInvalidValue;
  }
  if (accessible == allocation->hostAccessible) {
    return orSuccess;
  }
  if (orError_t error = backWithFile(*allocation); error != orSuccess) {
    return error;
  }
  if (!openreg::setHostAccess(begin, allocation->reserved(), allocation->fd, accessible)) {
    return fail(orErrorMemoryAllocation, "mmap at %p failed: %s", reinterpret_cast<void*>(begin), std::strerror(errno));
  }
  allocation->hostAccessible = accessible;
  return orSuccess;
}

orError_t DeviceMemory::makeShareable(uintptr_t begin, int& fd, uint64_t& size) {
  const std::lock_guard lock(mutex_);
  Allocation* const allocation = allocationAt(begin);
  if (allocation == nullptr) {
    return orErrorInvalidValue;
  }
  if (allocation->openCount > 0) {
    return fail(
        orErrorInvalidValue,
        "%p is memory of another process. Opened memory cannot be shared again; share a copy",
        reinterpret_cast<void*>(begin));
  }
  if (orError_t error = backWithFile(*allocation); error != orSuccess) {
    return error;
  }
  fd = allocation->fd;
  size = allocation->size;
  return orSuccess;
}

orError_t DeviceMemory::backWithFile(Allocation& allocation) {
  void* const memory = reinterpret_cast<void*>(windows.toKernel(allocation.begin));
  return allocation.fd >= 0 ? orSuccess
                            : moveToMemfd("device memory", memory, allocation.reserved(), MADV_DONTFORK, allocation.fd);
}

orError_t DeviceMemory::attach(int fd, uint64_t inode, size_t size, void** devPtr) {
  const std::lock_guard lock(mutex_);
  for (auto& [begin, known] : allocations_) {
    if (known.openCount > 0 && known.inode == inode) {
      close(fd);
      ++known.openCount;
      *devPtr = reinterpret_cast<void*>(begin);
      return orSuccess;
    }
  }
  Allocation allocation{0, size, fd, false, inode, 1};
  const size_t reserved = allocation.reserved();
  const auto begin = takeRange(allocation);
  if (!begin) {
    close(fd);
    return fail(
        orErrorMemoryAllocation,
        "no address space is left on device %d to map %s of another process. Call orIpcCloseMemHandle or orFree, or "
        "set OPENREG_DEVICE_MEMORY higher",
        device_,
        formatBytes(size).c_str());
  }
  allocation.begin = *begin;
  if (!mapShared(*begin, reserved, fd)) {
    const int reason = errno;
    if (giveBack(allocation)) {
      ranges_.give(*begin, allocation.span());
    }
    return fail(
        orErrorMemoryAllocation,
        "cannot map %s of another process: %s. Raise vm.max_map_count",
        formatBytes(size).c_str(),
        std::strerror(reason));
  }
  allocations_.emplace(*begin, allocation);
  *devPtr = reinterpret_cast<void*>(*begin);
  return orSuccess;
}

orError_t DeviceMemory::detach(uintptr_t begin) {
  const std::lock_guard lock(mutex_);
  const auto it = allocations_.find(begin);
  if (it == allocations_.end() || it->second.openCount == 0) {
    return fail(
        orErrorInvalidValue,
        "%p is not memory of another process; pass the pointer that orIpcOpenMemHandle returned",
        reinterpret_cast<void*>(begin));
  }
  if (--it->second.openCount == 0) {
    if (giveBack(it->second)) {
      ranges_.give(begin, it->second.span());
    }
    allocations_.erase(it);
  }
  return orSuccess;
}

std::optional<Allocation> DeviceMemory::find(uintptr_t address) {
  const std::lock_guard lock(mutex_);
  const Allocation* found = findContaining(allocations_, address);
  return found ? std::optional(*found) : std::nullopt;
}

bool DeviceMemory::tryFind(uintptr_t address, std::optional<Allocation>& found, bool orGuard) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    if (const std::unique_lock lock(mutex_, std::try_to_lock); lock) {
      const Allocation* const before = findBefore(allocations_, address);
      if (before && address - before->begin < (orGuard ? before->span() : before->size)) {
        found = *before;
      }
      return true;
    }
    sched_yield();
  }
  return false;
}

size_t DeviceMemory::used() {
  const std::lock_guard lock(mutex_);
  return used_;
}

void createDeviceMemory(int devices, size_t capacity) {
  memories = new std::deque<DeviceMemory>();
  for (int device = 0; device < devices; ++device) {
    memories->emplace_back(device, windows.base + device * windows.window, windows.window, capacity);
  }
}

DeviceMemory& deviceMemory(int device) {
  return (*memories)[device];
}

} // namespace openreg

using namespace openreg;

namespace {

orError_t setHostAccess(void* devPtr, bool accessible) {
  const auto address = reinterpret_cast<uintptr_t>(devPtr);
  if (!windows.containsDevice(address)) {
    return fail(orErrorInvalidValue, "%p is not device memory; pass the pointer that orMalloc returned", devPtr);
  }
  if (orError_t error = waitForAllDevices(); error != orSuccess) {
    return error;
  }
  const int device = windows.deviceOf(address);
  if (accessible && orIsObserved(orActivityUse)) {
    if (const auto known = deviceMemory(device).find(address)) {
      tellRange(orActivityUse, device, nullptr, "orMemoryUnprotect", devPtr, known->size);
    }
  }
  return deviceMemory(device).setHostAccess(address, accessible);
}

} // namespace

orError_t orMalloc(void** devPtr, size_t size) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (devPtr == nullptr) {
      return fail(orErrorInvalidValue, "devPtr is NULL; pass the address of a pointer");
    }
    *devPtr = nullptr;
    if (size == 0) {
      return orSuccess;
    }
    if (orError_t error = mayCallUnsafe(); error != orSuccess) {
      return error;
    }
    const ObservedCall call(orActivityCall, "orMalloc", currentDevice());
    if (orError_t error = checkCall(kAtSegment, currentDevice(), size); error != orSuccess) {
      return error;
    }
    const orError_t error = deviceMemory(currentDevice()).allocate(size, devPtr);
    if (error == orSuccess && orIsObserved(orActivityAllocation)) {
      tellRange(orActivityAllocation, currentDevice(), nullptr, "orMalloc", *devPtr, size);
    }
    return error;
  });
}

orError_t orSetGuardSize(size_t bytes) {
  enter(__func__);
  guardSize.store(roundUp(bytes, kPageSize), std::memory_order_relaxed);
  return orSuccess;
}

orError_t orFree(void* devPtr) {
  return releaseCall(__func__, [&]() -> orError_t {
    if (devPtr == nullptr) {
      return orSuccess;
    }
    const auto address = reinterpret_cast<uintptr_t>(devPtr);
    if (!windows.containsDevice(address)) {
      return fail(orErrorInvalidValue, "%p is not device memory; pinned host memory is freed by orFreeHost", devPtr);
    }
    const ObservedCall call(orActivityCall, "orFree", windows.deviceOf(address));
    if (orError_t error = waitForAllDevices(); error != orSuccess) {
      return error;
    }
    const int device = windows.deviceOf(address);
    if (orIsObserved(orActivityFree)) {
      if (const auto known = deviceMemory(device).find(address)) {
        tellRange(orActivityFree, device, nullptr, "orFree", devPtr, known->size);
      }
    }
    return deviceMemory(device).free(address);
  });
}

orError_t orMemGetInfo(size_t* free, size_t* total) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (free == nullptr || total == nullptr) {
      return fail(orErrorInvalidValue, "%s is NULL; pass the address of a size_t", free == nullptr ? "free" : "total");
    }
    if (const orError_t error = checkDevice(currentDevice()); error != orSuccess) {
      return error;
    }
    DeviceMemory& memory = deviceMemory(currentDevice());
    *total = memory.capacity();
    *free = memory.capacity() - memory.used();
    return orSuccess;
  });
}

orError_t orMemoryUnprotect(void* devPtr) {
  return deviceCall(__func__, [&] { return setHostAccess(devPtr, true); });
}

orError_t orMemoryProtect(void* devPtr) {
  return deviceCall(__func__, [&] { return setHostAccess(devPtr, false); });
}
