#pragma once

namespace c10::openreg {

// Makes c10::cuda::CUDACachingAllocator::get() the device's allocator, for C++ extensions.
void set_cuda_allocator();

} // namespace c10::openreg
