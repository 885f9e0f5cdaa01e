#pragma once

#include <cstddef>

// What PYTORCH_ALLOC_CONF, OPENREG_ALLOC_CONF and torch._C._accelerator_setAllocatorSettings() say about device memory.
//
// PyTorch parses and keeps the keys that all accelerators share (c10::CachingAllocator::AcceleratorAllocatorConfig);
// they are read from there where they are needed. The device has no keys of its own; it accepts those of CUDA's allocator,
// reads its environment variable, and says which setting has no effect on it.
namespace c10::openreg {

// Reads OPENREG_ALLOC_CONF, whose keys go before those of PYTORCH_ALLOC_CONF. Throws ValueError for what makes no sense.
void read_allocator_settings();

// The size of the block for a request of `size` bytes: a multiple of 512, or with roundup_power2_divisions the next step
// between two powers of two.
size_t rounded_size(size_t size);

// OPENREG_POISON.
bool poison_is_on();

} // namespace c10::openreg
