#pragma once

#include "../OpenRegMutex.h"
#include "OpenRegBlockEvents.h"
#include "OpenRegDevicePools.h"
#include "OpenRegDeviceSegments.h"
#include "OpenRegMemoryHistory.h"
#include "OpenRegMemorySnapshot.h"
#include "OpenRegOutOfMemory.h"

namespace c10::openreg {

// LITERALINCLUDE START: ALLOC PARAMS
// One request, on its way through the allocator.
struct AllocParams {
  const Stream stream;
  const size_t requested_size;
  const bool required;   // false: without room the result is null, and nothing is thrown
  const bool for_kernel; // the memory is for a kernel that runs on this thread
  const std::shared_ptr<GatheredContext> context;
  size_t size = 0;       // of the block: rounded, with the red zone
  size_t alloc_size = 0; // of a new segment
  BlockPool* pool = nullptr;
  Block* block = nullptr; // the result
};
// LITERALINCLUDE END: ALLOC PARAMS

// LITERALINCLUDE START: DEVICE CACHING ALLOCATOR
// The caching allocator of one device, as c10::cuda::CUDACachingAllocator's DeviceCachingAllocator, whose names the
// functions have. It owns the device's pools, statistics, history and pending events, and the lock that guards them.
//
// All functions may be called from every thread. Those that have a `lock` parameter are called with the lock held. They
// give it up where they wait, and hold it again when they return.
class DeviceCachingAllocator {
 public:
  explicit DeviceCachingAllocator(DeviceIndex device);

  // Memory for work on the current stream of the device, as a device address. Throws torch.OutOfMemoryError. For
  // `required` and `for_kernel` see AllocParams. `size` is not 0.
  char* malloc(size_t size, bool required = true, bool for_kernel = false);
  void free(const void* pointer);

  // Memory for a queued kernel, called on the thread that runs the kernel. That thread is the device, so nothing here may
  // wait for the device. Null without room.
  char* malloc_temporary(size_t size);
  void free_temporary(const void* pointer);

  void recordStream(const void* pointer, Stream stream);
  void emptyCache(MempoolId_t id);

  // Whether `pointer` is the address of a block of this device.
  bool owns(const void* pointer);

  // Call fn(statistics), fn(pools) or fn(segments) with the lock held.
  template <class Fn>
  auto with_stats(const Fn& fn) {
    const std::lock_guard lock(mutex());
    return fn(stats_);
  }
  template <class Fn>
  auto with_pools(const Fn& fn) {
    const std::lock_guard lock(mutex());
    return fn(pools_);
  }
  template <class Fn>
  auto with_segments(const Fn& fn) {
    const std::lock_guard lock(mutex());
    return fn(segments_);
  }

  // Removes a user of the MemPool `id`. When the last one is gone, gives the pool's free segments back to the device.
  void release_pool(MempoolId_t id);

  void record_history(const std::optional<HistoryOptions>& options, bool clear);
  bool history_enabled() const {
    return history_.enabled();
  }
  // The segments of the MemPool `id`, in no order; {0, 0}: all segments.
  std::vector<SegmentInfo> snapshot(MempoolId_t id);
  std::vector<TraceEntry> trace(const std::function<time_t(approx_time_t)>& to_nanoseconds);
  std::shared_ptr<GatheredContext> context_of(const void* pointer);
  void attach_out_of_memory_observer(OutOfMemoryObserver observer);

 private:
  const DeviceIndex device_;
  const bool poison_;
  Mutex mutex_; // guards the rest
  DeviceStats stats_;
  BlockTable blocks_;
  DevicePools pools_{&stats_, &blocks_};
  MemoryHistory history_{device_};
  DeviceSegments segments_{device_, &stats_, &blocks_, &history_};
  BlockEvents events_;
  std::vector<OutOfMemoryObserver> observers_;

  Mutex& mutex();
  C10_ALWAYS_INLINE Block* block_at(const void* pointer) const;
  Block* find_block(const void* pointer) const;

  // ---- allocating
  bool get_free_block(AllocParams& params) {
    params.block = params.pool->find(params.size);
    return params.block != nullptr;
  }
  bool get_new_block(std::unique_lock<Mutex>& lock, AllocParams& params);
  bool alloc_block(AllocParams& params);
  bool try_mempool_fallback(AllocParams& params);
  C10_ALWAYS_INLINE void alloc_found_block(const AllocParams& params);
  [[noreturn]] void throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params);

  // ---- freeing
  C10_ALWAYS_INLINE void free_block(Block* block, const std::shared_ptr<GatheredContext>& context);
  void process_events(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);
  bool poison_before_reuse(std::unique_lock<Mutex>& lock, Block* block);

  // ---- giving segments back to the device
  void release_blocks(std::unique_lock<Mutex>& lock, const DeviceSegments::Segments& segments);
  void release_cached_blocks(
      std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context, MempoolId_t id);
  bool release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params);
  void garbage_collect_cached_blocks(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);
  void synchronize_and_free_events(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);

  // ---- telling others
  void note_free(const void* pointer);
  void report(const Block* block, int64_t bytes) const;
  C10_ALWAYS_INLINE void record_trace(
      TraceEntry::Action action, const Block* block, size_t size, const std::shared_ptr<GatheredContext>& context);
};
// LITERALINCLUDE END: DEVICE CACHING ALLOCATOR

} // namespace c10::openreg
