#pragma once

#include <mutex>
#include <optional>

#include "allocation_map.h"
#include "openreg.h"
#include "range_allocator.h"

// The memory of each device: what is allocated, and what backs it.
namespace openreg {

struct Allocation {
  uintptr_t begin; // in the device window
  size_t size;     // bytes that the caller asked for
  int fd = -1;     // the memfd that backs shared or unprotected memory; -1: anonymous memory
  bool hostAccessible = false;
  uint64_t inode = 0; // identifies memory that another process owns
  int openCount = 0;  // how many handles of that memory are open; 0: this process owns the memory
  size_t guard = 0;   // bytes of addresses behind the memory that stay inaccessible (orSetGuardSize)

  size_t reserved() const; // bytes of memory: whole pages
  size_t span() const;     // bytes of addresses: the memory and the guard
};

// The memory of one device. The descriptions of allocations are kept in host memory, because the host cannot read
// device memory.
class DeviceMemory {
 public:
  DeviceMemory(int device, uintptr_t begin, size_t window, size_t capacity);

  orError_t allocate(size_t size, void** devPtr);
  orError_t free(uintptr_t begin);
  orError_t setHostAccess(uintptr_t begin, bool accessible);

  // Returns the memfd behind an allocation and moves the bytes there if necessary. The DeviceMemory keeps the
  // descriptor.
  orError_t makeShareable(uintptr_t begin, int& fd, uint64_t& size);
  // Maps the memfd of another process and takes ownership of `fd`. If that memory is mapped already, gives the
  // same address again.
  orError_t attach(int fd, uint64_t inode, size_t size, void** devPtr);
  orError_t detach(uintptr_t begin);

  // The allocation that contains `address`.
  std::optional<Allocation> find(uintptr_t address);
  // As find(), for a signal handler: allocates no memory, and gives up if the lock stays taken. Returns false if it
  // gave up. `orGuard`: also finds an allocation if `address` is in the guard behind the allocation.
  bool tryFind(uintptr_t address, std::optional<Allocation>& found, bool orGuard = false);

  size_t capacity() const {
    return capacity_;
  }
  size_t used();

 private:
  Allocation* allocationAt(uintptr_t begin);
  std::optional<uintptr_t> takeRange(Allocation& allocation);
  orError_t backWithFile(Allocation& allocation); // moves the bytes to a memfd, unless they are in one
  bool giveBack(const Allocation& allocation);

  const int device_;
  const size_t capacity_;
  std::mutex mutex_; // guards the rest
  size_t used_ = 0;
  RangeAllocator ranges_;
  AllocationMap<Allocation> allocations_;
};

void createDeviceMemory(int devices, size_t capacity);
DeviceMemory& deviceMemory(int device);

} // namespace openreg
