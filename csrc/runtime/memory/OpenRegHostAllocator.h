#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

#include "runtime/OpenRegException.h"

// Pinned memory: PyTorch's own caching allocator, over the device library's functions.
namespace c10::openreg {

OPENREG_API at::HostAllocator* host_allocator();

// ---- records where pinned memory was allocated, because PyTorch's host allocator keeps no history of its own

struct PinnedBlock {
  const void* address;
  size_t size; // as requested
  std::shared_ptr<GatheredContext> context;
};

// From this call on, `gather` makes a stack trace for each new block of pinned memory. The trace is kept as long as the
// block is in use. Null: new blocks get no stack trace.
OPENREG_API void record_pinned_memory(CachingDeviceAllocator::CreateContextFn gather);

// The blocks in use that have a stack trace.
OPENREG_API std::vector<PinnedBlock> recorded_pinned_memory();

} // namespace c10::openreg
