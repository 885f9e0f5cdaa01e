#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include "runtime/OpenRegException.h"

// Decides where the CPU's kernels allocate. PyTorch has one allocator for the CPU. The first kernel replaces this
// allocator by one that can also hand out device memory.
namespace c10::openreg {

// While an object of this class lives, the calling thread's CPU allocations come from `device`. So the outputs and
// temporaries of a kernel that runs on the device count as device memory, and the device's capacity limits them. If
// `device` is -1, the CPU allocates as usual.
//
// `only_writes`: all results of the kernel are arguments (in-place, out=), so all its allocations are temporaries.
// CUDA's kernel keeps most such temporaries in registers, and needs no memory for them. Therefore a temporary that does
// not fit on the device is allocated on the host, and is no error.
class OPENREG_API KernelAllocations {
 public:
  explicit KernelAllocations(DeviceIndex device, bool only_writes = false);
  ~KernelAllocations();
  KernelAllocations(const KernelAllocations&) = delete;
  KernelAllocations& operator=(const KernelAllocations&) = delete;

 private:
  DeviceIndex previous_;
  bool previously_only_writes_;
};

// Memory for a result of a kernel that runs later.
struct ReservedMemory {
  StorageImpl* storage; // a CPU twin
  size_t position;      // how many allocations of the same size the kernel makes before it allocates the result
};

// While an object of this class lives, an allocation at a reserved position gets the reserved memory. Every other
// allocation gets the memory of a temporary (allocate_temporary()), or host memory. The class serves queued kernels:
// their results got device memory at the launch. A queued kernel must not take memory that the allocator counts as
// free, because kernels that were queued before the memory was freed may still use it.
class OPENREG_API ReservedAllocations {
 public:
  explicit ReservedAllocations(ArrayRef<ReservedMemory> reserved);
  ~ReservedAllocations();
  ReservedAllocations(const ReservedAllocations&) = delete;
  ReservedAllocations& operator=(const ReservedAllocations&) = delete;

  DataPtr allocate(size_t size);
  bool has(const void* address) const;

  // How many allocations of the same size came before the last allocation at `address`. nullopt: no allocation of a
  // reserved size has this address.
  std::optional<size_t> position_of(const void* address) const;

 private:
  c10::SmallVector<ReservedMemory, 4> reserved_;
  c10::SmallVector<std::pair<const void*, size_t>, 4> allocated_; // the allocations so far that have a reserved size
};

// The allocator with which a kernel resizes a twin. The new memory belongs to a result and is no temporary, so a full
// device is an error.
Allocator* twin_allocator();

// Whether `address` lies in the kernel window of a device (Twin.h explains the two windows).
bool in_kernel_window(const void* address);

} // namespace c10::openreg
