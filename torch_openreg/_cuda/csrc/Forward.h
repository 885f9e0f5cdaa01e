#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace c10::openreg {

// The number that programs for CUDA use as cudaStream_t. 0 is the default stream.
uintptr_t stream_pointer(const Stream& stream);
Stream stream_of_pointer(uintptr_t pointer, DeviceIndex device);

// Lets the functions of the stubs of PyTorch's libraries for CUDA (stubs/) call this device.
void forward_stubs();

} // namespace c10::openreg
