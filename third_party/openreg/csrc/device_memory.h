#pragma once

#include <mutex>
#include <optional>

#include "allocation_map.h"
#include "openreg.h"
#include "range_allocator.h"

namespace openreg {

struct Allocation {
  uintptr_t begin; // in the device window
  size_t size;     // bytes asked for
  int fd = -1;     // the memfd that backs it since it was shared or unprotected; -1: anonymous memory
  bool hostAccessible = false;
  uint64_t inode = 0; // of memory that another process owns
  int opened = 0;     // how often that memory is open; 0: this process's own

  size_t reserved() const;
};

// The memory of one device. What describes an allocation is kept outside device memory: the host cannot read it there.
class DeviceMemory {
 public:
  DeviceMemory(int device, uintptr_t begin, size_t window, size_t capacity);

  orError_t allocate(size_t size, void** devPtr);
  orError_t free(uintptr_t begin);
  orError_t setHostAccess(uintptr_t begin, bool accessible);

  // The memfd behind an allocation, which stays its owner's.
  orError_t makeShareable(uintptr_t begin, int& fd, uint64_t& size);
  // Maps the memfd of another process, and takes `fd`; the same address again if it is mapped already.
  orError_t attach(int fd, uint64_t inode, size_t size, void** devPtr);
  orError_t detach(uintptr_t begin);

  // The allocation that contains `address`.
  std::optional<Allocation> find(uintptr_t address);
  // For a signal handler: allocates nothing, and gives up instead of waiting for a lock for long. False if it gave up.
  bool tryFind(uintptr_t address, std::optional<Allocation>& found);

  size_t capacity() const {
    return capacity_;
  }
  size_t used();

 private:
  Allocation* allocationAt(uintptr_t begin);
  orError_t moveToFile(Allocation& allocation);
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
