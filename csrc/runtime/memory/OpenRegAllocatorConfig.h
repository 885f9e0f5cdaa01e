#pragma once

#include <cstddef>

#include "../OpenRegException.h"

// What PYTORCH_ALLOC_CONF, OPENREG_ALLOC_CONF and torch._C._accelerator_setAllocatorSettings() say about device memory.
//
// PyTorch parses and keeps the keys that all accelerators share (c10::CachingAllocator::AcceleratorAllocatorConfig);
// they are read from there where they are needed. The device has no keys of its own; it accepts those of CUDA's allocator,
// reads its environment variable, and says which setting has no effect on it.
namespace c10::openreg {

// Reads OPENREG_ALLOC_CONF, whose keys go before those of PYTORCH_ALLOC_CONF. Throws ValueError for what makes no sense.
void read_allocator_settings();

// Every block starts at a multiple of this many bytes: 512, as with CUDA's allocator, or another power of two up to 1 MiB.
// To be set before the device starts. Throws ValueError for anything else.
OPENREG_API void set_block_alignment(size_t bytes);

// The size of the block for a request of `size` bytes: a multiple of the alignment, from the next step between two powers
// of two with roundup_power2_divisions.
size_t rounded_size(size_t size);

// OPENREG_POISON.
bool poison_is_on();

} // namespace c10::openreg
