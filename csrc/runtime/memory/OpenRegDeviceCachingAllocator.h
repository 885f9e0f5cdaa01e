#pragma once

#include "runtime/memory/OpenRegDeviceBlockCache.h"
#include "runtime/memory/OpenRegOutOfMemory.h"

namespace c10::openreg {

// One request, on its way through the allocator.
struct AllocParams {
  const Stream stream;
  const size_t requested_size;
  const bool required;   // false: if the device has no room, the result is null; only an injected fault is thrown
  const bool for_kernel; // the memory is for a kernel that runs on this thread
  const std::shared_ptr<GatheredContext> context;
  size_t size = 0;       // of the block: rounded, with the red zone
  size_t red_zone = 0;   // what the red zone adds to the size
  size_t alloc_size = 0; // of a new segment
  BlockPool* pool = nullptr;
  Block* block = nullptr; // the result
};

// LITERALINCLUDE START: DEVICE CACHING ALLOCATOR
// The caching allocator of one device: how a request gets a block, and what happens if the device has no room.
// Functions that also exist in CUDA's DeviceCachingAllocator (c10/cuda/CUDACachingAllocator.cpp) have the same names as
// there. For threads and the lock see DeviceBlockCache.
class DeviceCachingAllocator : public DeviceBlockCache {
 public:
  using DeviceBlockCache::DeviceBlockCache;

  // Memory for work on the current stream of the device, as a device address. Throws torch.OutOfMemoryError. For
  // `required` and `for_kernel` see AllocParams. `size` is not 0.
  char* malloc(size_t size, bool required = true, bool for_kernel = false);
  void free(const void* pointer);

  // A *temporary*: memory that a queued kernel needs only while it runs. Called on the thread that runs the kernel. The
  // device's work waits for that thread, so nothing here may wait for the device. Returns null if the device has no
  // room.
  char* malloc_temporary(size_t size);
  void free_temporary(const void* pointer);

  void recordStream(const void* pointer, Stream stream);
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);

 private:
  std::vector<OutOfMemoryObserver> observers_;

  bool get_free_block(AllocParams& params) {
    params.block = params.pool->find(params.size);
    return params.block != nullptr;
  }
  bool get_new_block(std::unique_lock<Mutex>& lock, AllocParams& params);
  bool alloc_block(AllocParams& params);
  bool try_mempool_fallback(AllocParams& params);
  C10_ALWAYS_INLINE void alloc_found_block(const AllocParams& params);
  [[noreturn]] void throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params);

  bool release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params);
  void note_free(const void* pointer);
  void report(const Block* block, int64_t bytes) const;
};
// LITERALINCLUDE END: DEVICE CACHING ALLOCATOR

} // namespace c10::openreg
