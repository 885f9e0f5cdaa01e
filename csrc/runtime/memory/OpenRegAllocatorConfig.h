#pragma once

#include <c10/core/AllocatorConfig.h>

#include "runtime/OpenRegException.h"
#include "runtime/memory/OpenRegRedZone.h"

// What PYTORCH_ALLOC_CONF, OPENREG_ALLOC_CONF and torch._C._accelerator_setAllocatorSettings() say about device memory,
// and the sizes that follow from these settings.
//
// PyTorch parses and keeps the settings that all accelerators share
// (c10::CachingAllocator::AcceleratorAllocatorConfig); the allocator reads a setting there whenever it needs the value.
// The device adds no settings. It also accepts the settings that only CUDA's allocator has, but only
// per_process_memory_fraction has an effect here. The device warns about expandable_segments, and about a `backend`
// other than `native`.
namespace c10::openreg {

using c10::CachingAllocator::kMinBlockSize;
using c10::CachingAllocator::kSmallSize;

// Applies the settings of OPENREG_ALLOC_CONF, or, if it is not set, those of PYTORCH_ALLOC_CONF. If both are set,
// PyTorch has read PYTORCH_ALLOC_CONF before: of its settings that OPENREG_ALLOC_CONF does not name, PyTorch keeps some
// and resets others. Throws ValueError for a setting that is unknown or out of range.
void read_allocator_settings();

// The fraction of each device's memory that the process may reserve (per_process_memory_fraction). The allocator sets
// this limit when it starts; set_memory_fraction() changes the limit later.
double memory_fraction_at_start();

// Sets the alignment of blocks in bytes: a power of two from 512 (the default, as with CUDA's allocator) to 1 MiB. Must
// be called before the device starts. Throws ValueError for any other number.
OPENREG_API void set_block_alignment(size_t bytes);

// The size of the block for a request of `size` bytes: a multiple of the alignment. If roundup_power2_divisions is n,
// the range from one power of two to the next has n equal steps, and a size above 512 * n bytes is first rounded up
// to a step.
size_t round_size(size_t size);

// The size of a new segment in which a block of `size` bytes fits. With red zones, a new large block fills its segment.
// The device then leaves a guard, inaccessible addresses, behind every segment (orSetGuardSize), and so behind the
// block. A cached block that is split for a smaller request has no guard behind it.
inline size_t get_allocation_size(bool is_small, size_t size) {
  using namespace c10::CachingAllocator;
  if (C10_UNLIKELY(!is_small && red_zone.load(std::memory_order_relaxed) != 0)) {
    return size;
  }
  return is_small                ? kSmallBuffer
         : size < kMinLargeAlloc ? AcceleratorAllocatorConfig::large_segment_size()
                                 : (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

// Whether max_split_size_mb forbids splitting a block of this size.
inline bool is_oversize(size_t size) {
  return size > kSmallSize && size >= c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size();
}

} // namespace c10::openreg
