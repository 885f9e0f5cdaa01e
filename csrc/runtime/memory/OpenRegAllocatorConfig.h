#pragma once

#include <c10/core/AllocatorConfig.h>

#include "../OpenRegException.h"
#include "OpenRegRedZone.h"

// What PYTORCH_ALLOC_CONF, OPENREG_ALLOC_CONF and torch._C._accelerator_setAllocatorSettings() say about device memory,
// and the sizes that follow from it.
//
// PyTorch parses and keeps the settings that all accelerators share
// (c10::CachingAllocator::AcceleratorAllocatorConfig); the allocator reads a setting there each time when it needs the
// value. The device has no settings of its own. It accepts those of CUDA's allocator, reads its own environment
// variable, and warns of settings that have no effect on it.
namespace c10::openreg {

using c10::CachingAllocator::kMinBlockSize;
using c10::CachingAllocator::kSmallSize;

// Reads OPENREG_ALLOC_CONF, whose settings override those of PYTORCH_ALLOC_CONF. Throws ValueError for a setting that
// is unknown or out of range.
void read_allocator_settings();

// The fraction of a device's memory that the process may reserve from the start of the device
// (per_process_memory_fraction).
double memory_fraction_at_start();

// Sets the alignment of blocks in bytes: 512, as with CUDA's allocator, or another power of two up to 1 MiB. Must be
// called before the device starts. Throws ValueError for any other number.
OPENREG_API void set_block_alignment(size_t bytes);

// The size of the block for a request of `size` bytes: a multiple of the alignment. With roundup_power2_divisions the
// size is first rounded up to the next step between two powers of two.
size_t round_size(size_t size);

// The size of a new segment in which a block of `size` bytes fits. With red zones, a large block gets a segment of its
// own that ends with it, so that the device can leave a guard behind it (OpenRegRedZone.h).
inline size_t get_allocation_size(bool is_small, size_t size) {
  using namespace c10::CachingAllocator;
  if (C10_UNLIKELY(!is_small && red_zone.load(std::memory_order_relaxed) != 0)) {
    return size;
  }
  return is_small                ? kSmallBuffer
         : size < kMinLargeAlloc ? AcceleratorAllocatorConfig::large_segment_size()
                                 : (size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

// Whether max_split_size_mb forbids to split a block of this size.
inline bool is_oversize(size_t size) {
  return size > kSmallSize && size >= c10::CachingAllocator::AcceleratorAllocatorConfig::max_split_size();
}

} // namespace c10::openreg
