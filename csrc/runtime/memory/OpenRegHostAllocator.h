#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <vector>

#include "../OpenRegException.h"

// Where pinned memory was allocated. PyTorch's host allocator keeps no history of its own.
namespace c10::openreg {

struct PinnedBlock {
  const void* address;
  size_t size; // as requested
  std::shared_ptr<GatheredContext> context;
};

// From here on, a stack trace is kept for each new block of pinned memory, as long as the block is in use. Null: for
// none.
OPENREG_API void record_pinned_memory(CachingDeviceAllocator::CreateContextFn gather);

// The blocks in use that have a stack trace.
OPENREG_API std::vector<PinnedBlock> recorded_pinned_memory();

} // namespace c10::openreg
