#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include "OpenRegException.h"

// The caching allocator of device memory: what c10::cuda::CUDACachingAllocator is to CUDA.
//
// Rules:
//   - A block belongs to the stream it was allocated on. Freed, it is handed out again on that stream at once, because the
//     stream runs in order: whatever still reads the block runs before what the new owner queues. Used on another stream,
//     it must be announced with recordStream(), or the other stream may read the new owner's bytes.
//   - Sizes are rounded to 512 bytes, segments of 2 MiB (blocks up to 1 MiB), 20 MiB, or the request's own size (from
//     10 MiB) come from orMalloc, as on CUDA, so that memory_allocated() and memory_reserved() say what CUDA's would.
//   - Nothing here reads or writes device memory: after fork() the pages are gone in the child, and it must still be able
//     to drop its tensors.
namespace c10::openreg {

class OPENREG_API OpenRegDeviceAllocator : public c10::DeviceAllocator {
 public:
  // On the current device and its current stream. Throws torch.OutOfMemoryError.
  DataPtr allocate(size_t size) override = 0;

  // The same bytes as a kernel sees them: an address in the kernel window, labelled CPU. For the outputs and temporaries of
  // a kernel that runs on `device`; the memory returns to the device whoever frees it.
  virtual DataPtr allocate_for_kernel(size_t size, DeviceIndex device) = 0;
};

OPENREG_API OpenRegDeviceAllocator* device_allocator();

} // namespace c10::openreg
