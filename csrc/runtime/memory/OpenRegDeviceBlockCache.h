#pragma once

#include "runtime/OpenRegMutex.h"
#include "runtime/memory/OpenRegBlockEvents.h"
#include "runtime/memory/OpenRegDevicePools.h"
#include "runtime/memory/OpenRegDeviceSegments.h"
#include "runtime/memory/OpenRegMemoryHistory.h"
#include "runtime/memory/OpenRegMemorySnapshot.h"

namespace c10::openreg {

// The blocks of one device: the pools, statistics, history and pending events, and the lock that guards them. This
// class frees blocks, lets them wait for other streams, and gives segments back to the device. DeviceCachingAllocator
// adds the requests.
//
// All public functions may be called from every thread. A protected function, except mutex(), is called with the lock
// held. A function with a `lock` parameter releases the lock while it waits, and holds the lock again when it returns.
class DeviceBlockCache {
 public:
  explicit DeviceBlockCache(DeviceIndex device);

  // Gives back all free segments of the pools that `id` stands for; see DevicePools::releasable_pools(). Waits for the
  // device.
  void emptyCache(MempoolId_t id);

  // Whether `pointer` is the address of a block of this device.
  bool owns(const void* pointer);

  // These functions call fn(statistics), fn(pools) or fn(segments) with the lock held.
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

  void record_history(const std::optional<HistoryOptions>& options, bool clear); // nullopt: stops the recording
  bool history_enabled() const {
    return history_.enabled();
  }
  // The segments of the MemPool `id`, in no order; {0, 0}: all segments.
  std::vector<SegmentInfo> snapshot(MempoolId_t id);
  std::vector<TraceEntry> trace(const std::function<time_t(approx_time_t)>& to_nanoseconds);
  // Where the block at `pointer` was allocated; null if that is unknown.
  std::shared_ptr<GatheredContext> context_of(const void* pointer);

 protected:
  const DeviceIndex device_;
  const bool poison_;
  Mutex mutex_; // guards the rest
  DeviceStats stats_;
  BlockTable blocks_;
  DevicePools pools_{&stats_, &blocks_};
  MemoryHistory history_{device_};
  DeviceSegments segments_{device_, &stats_, &blocks_, &history_};
  BlockEvents events_;

  Mutex& mutex();

  // The block at `pointer`, an address of the device window or of the kernel window; null if there is no block.
  C10_ALWAYS_INLINE Block* block_at(const void* pointer) const {
    const auto found = blocks_.find(static_cast<char*>(orGetDevicePointer(pointer)));
    return found == blocks_.end() ? nullptr : found->second;
  }
  // The same, for all functions but free(). Out of line: each place that inlines the search makes free() slower.
  Block* find_block(const void* pointer) const;

  // Makes a block that nobody uses any more available to later requests.
  C10_ALWAYS_INLINE void free_block(Block* block, const std::shared_ptr<GatheredContext>& context) {
    decrease(stats_.active, block->pool->stat_type(), 1);
    decrease(stats_.active_bytes, block->pool->stat_type(), block->counted_size());
    record_trace(
        TraceEntry::FREE_COMPLETED, block, block->requested_size, context ? context : block->context_when_allocated);
    block->context_when_allocated.reset();
    block->pool->put(block);
  }

  // Frees the blocks whose events have passed. With poison, a block that is not filled yet first waits for its fill.
  void process_events(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);
  bool poison_before_reuse(std::unique_lock<Mutex>& lock, Block* block);

  void release_blocks(std::unique_lock<Mutex>& lock, const DeviceSegments::Segments& segments);
  void release_cached_blocks(
      std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context, MempoolId_t id);
  void garbage_collect_cached_blocks(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);
  void synchronize_and_free_events(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context);

  C10_ALWAYS_INLINE void record_trace(
      TraceEntry::Action action, const Block* block, size_t size, const std::shared_ptr<GatheredContext>& context) {
    history_.record(action, block->address, size, block->pool->stream, block->pool->owner->id, context);
  }
};

} // namespace c10::openreg
