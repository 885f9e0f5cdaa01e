#pragma once

#include <c10/core/AllocatorConfig.h>

#include <atomic>

#include "runtime/OpenRegException.h"

// What PYTORCH_ALLOC_CONF, OPENREG_ALLOC_CONF and torch._C._accelerator_setAllocatorSettings() say about device memory.
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

// The alignment of blocks now, in bytes.
inline std::atomic<size_t> block_alignment_now{kMinBlockSize};
inline size_t block_alignment() {
  return block_alignment_now.load(std::memory_order_relaxed);
}

// If roundup_power2_divisions is n, the range from one power of two to the next has n equal steps. A size above 512 * n
// bytes is rounded up to a step; any other size stays.
inline std::atomic<bool> divides_powers_of_two{false}; // whether the setting has any effect
size_t round_up_to_division_slowly(size_t size);
inline size_t round_up_to_division(size_t size) {
  return C10_UNLIKELY(divides_powers_of_two.load(std::memory_order_relaxed)) ? round_up_to_division_slowly(size) : size;
}

} // namespace c10::openreg
