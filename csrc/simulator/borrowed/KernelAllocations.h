#pragma once

#include <c10/core/StorageImpl.h>
#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <optional>

#include "runtime/OpenRegException.h"
#include "simulator/borrowed/ResultPlaces.h"

// Decides where the CPU's kernels allocate. PyTorch has one allocator for the CPU. The first kernel replaces this
// allocator by one that can also hand out device memory.
//
// Rule: only a kernel's results are device memory. A temporary is host memory of PyTorch's own CPU allocator. CUDA's
// kernels keep most of these temporaries in registers, so the device's statistics, its capacity and its history do not
// know them.
namespace c10::openreg {

// While an object of this class lives, the calling thread runs a kernel, and the allocations of the thread are those of
// the kernel. Objects may be nested: the innermost one counts.
class OPENREG_API KernelAllocations {
 public:
  using Allocations = at::openreg::Allocations;

  // The kernel runs now. Its allocations `results` (ResultPlaces.h) get memory of `device`. -1: of no device, so all
  // allocations are host memory.
  explicit KernelAllocations(DeviceIndex device, Allocations results = 0);

  // The kernel was queued, and its results got device memory at the launch: `reserved`, CPU views. An allocation in
  // `results` gets the first reserved memory of its size that is not handed out yet. A queued kernel must not take
  // memory that the allocator counts as free, because kernels that were queued before the memory was freed may still
  // use it.
  KernelAllocations(ArrayRef<StorageImpl*> reserved, Allocations results);

  ~KernelAllocations();
  KernelAllocations(const KernelAllocations&) = delete;
  KernelAllocations& operator=(const KernelAllocations&) = delete;

  DataPtr allocate(size_t size);
  // Memory for an output that the kernel resizes. It belongs to a result, so a full device is an error.
  DataPtr allocate_output(size_t size);
  bool reserves(const void* address) const;

  // The kernel has returned a result in this memory.
  void note_result(const void* address);
  // The allocations that became results, if they differ from those that the constructor got.
  std::optional<Allocations> correction() const {
    return noted_ && found_ != results_ ? std::optional(found_) : std::nullopt;
  }

 private:
  static constexpr unsigned kLast = at::openreg::kLastAllocation;

  KernelAllocations* const previous_;
  const DeviceIndex device_;
  const Allocations results_;
  Allocations found_ = 0; // the allocations that became results
  bool noted_ = false;
  unsigned count_ = 0;        // of the allocations so far
  unsigned late_results_ = 0; // results that are none of the allocations in addresses_
  const ArrayRef<StorageImpl*> reserved_;
  uint32_t handed_out_ = 0;      // a bit for each of reserved_
  const void* addresses_[kLast]; // of the first allocations; the others are not told apart

  DataPtr place(size_t size, bool is_result);
};

// While an object of this class lives, the calling thread's allocations are host memory, even if the thread runs a
// kernel.
class OPENREG_API HostAllocations {
 public:
  HostAllocations();
  ~HostAllocations();
  HostAllocations(const HostAllocations&) = delete;
  HostAllocations& operator=(const HostAllocations&) = delete;

 private:
  KernelAllocations* const kernel_;
};

// The allocator with which a kernel resizes a CPU view.
Allocator* view_allocator();

// Whether `address` lies in the kernel window of a device (CpuView.h explains the two windows).
bool in_kernel_window(const void* address);

} // namespace c10::openreg
