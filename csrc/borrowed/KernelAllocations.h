#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

#include "../runtime/OpenRegException.h"

// Where the CPU's kernels allocate. PyTorch has one allocator for the CPU, which the first kernel replaces by one that can
// hand out memory of a device.
namespace c10::openreg {

// As long as it lives, the calling thread's CPU allocations come from `device`: the outputs and temporaries of a kernel that
// runs on the device are the device's memory, counted and limited as such. With index -1 the CPU allocates as usual.
//
// A kernel that `only_writes` to its arguments (in-place, out=) allocates temporaries only. CUDA's kernel has most of them
// in registers, so a temporary for which the device has no room is host memory.
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
  size_t turn;          // how many allocations of the same size come before that of the result
};

// As long as it lives, the allocation whose turn it is gets the reserved memory, and all others are temporaries. It serves
// kernels that run later: their results have device memory already, and memory that the allocator thinks free on the stream
// may still be in use by work that was queued before.
class OPENREG_API ReservedAllocations {
 public:
  explicit ReservedAllocations(ArrayRef<ReservedMemory> reserved);
  ~ReservedAllocations();
  ReservedAllocations(const ReservedAllocations&) = delete;
  ReservedAllocations& operator=(const ReservedAllocations&) = delete;

  DataPtr allocate(size_t size);
  bool has(const void* address) const;

  // The turn that the last allocation at `address` had. nullopt: no result has the size of that allocation.
  std::optional<size_t> turn_of(const void* address) const;

 private:
  c10::SmallVector<ReservedMemory, 4> reserved_;
  c10::SmallVector<std::pair<const void*, size_t>, 4> allocated_; // of the sizes that are reserved
};

// The allocator of a twin. What a kernel resizes is a result and no temporary, so its memory is required.
Allocator* twin_allocator();

// Whether `address` lies in the kernel window of a device.
bool in_kernel_window(const void* address);

} // namespace c10::openreg
