#include "runtime/memory/OpenRegDeviceBlockCache.h"

#include <algorithm>

#include "runtime/memory/OpenRegAllocatorConfig.h"
#include "runtime/memory/OpenRegPoison.h"

namespace c10::openreg {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

DeviceBlockCache::DeviceBlockCache(DeviceIndex device) : device_(device), poison_(poison_is_on()) {}

// Returns the lock. A function that a forked child may call gets the lock here, because this function throws in such a
// child. There are two reasons. Another thread of the parent may have held the lock at the fork; then the lock is never
// free in the child. And the tables behind the lock describe device memory that the child does not have.
Mutex& DeviceBlockCache::mutex() {
  check_not_forked();
  return mutex_;
}

C10_NOINLINE Block* DeviceBlockCache::find_block(const void* pointer) const {
  return block_at(pointer);
}

bool DeviceBlockCache::owns(const void* pointer) {
  const std::lock_guard lock(mutex());
  return find_block(pointer) != nullptr;
}

void DeviceBlockCache::process_events(std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context) {
  for (Block* block : events_.take_finished()) {
    if (C10_UNLIKELY(poison_) && !poison_before_reuse(lock, block)) {
      continue;
    }
    block->event_count = 0;
    free_block(block, context);
  }
}

// Returns true if the block is filled with poison already. Otherwise queues the fill, and returns whether the fill is
// done at once. If it is not, the block waits for the fill as it would wait for another stream: a kernel that runs on
// its launching thread must not get the block before the fill is done.
bool DeviceBlockCache::poison_before_reuse(std::unique_lock<Mutex>& lock, Block* block) {
  if (block->poison_queued) {
    block->poison_queued = false;
    return true;
  }
  block->event_count = 1; // so that no neighbour merges with the block
  lock.unlock();
  queue_poison(block);
  const Stream stream = stream_of(block);
  const orEvent_t event = create_event(stream);
  OPENREG_CHECK(orEventRecord(event, stream_handle(stream)));
  const bool done = orEventQuery(event) == orSuccess;
  lock.lock();
  if (done) {
    orEventDestroy(event);
    block->event_count = 0;
  } else {
    block->poison_queued = true;
    events_.insert(event, block);
  }
  return done;
}

// ---- giving segments back to the device

void DeviceBlockCache::emptyCache(MempoolId_t id) {
  const auto context = history_.gather(RecordContext::ALL);
  std::unique_lock lock(mutex());
  release_cached_blocks(lock, context, id);
}

// Gives the segments back to the device. Releases the lock meanwhile, because DeviceSegments::free() waits for the
// device.
void DeviceBlockCache::release_blocks(std::unique_lock<Mutex>& lock, const DeviceSegments::Segments& segments) {
  lock.unlock();
  DeviceSegments::free(segments);
  lock.lock();
}

void DeviceBlockCache::release_cached_blocks(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context, MempoolId_t id) {
  synchronize_and_free_events(lock, context);
  release_blocks(lock, segments_.take_all(pools_.releasable_pools(id), context));
  pools_.forget_empty_pools();
}

void DeviceBlockCache::synchronize_and_free_events(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context) {
  ++stats_.num_sync_all_streams;
  // With poison a block may wait twice: for the other streams, and then for its fill.
  for (int pass = 0; pass < (poison_ ? 2 : 1) && !events_.empty(); ++pass) {
    lock.unlock();
    device_synchronize(device_);
    lock.lock();
    process_events(lock, context);
  }
}

// garbage_collection_threshold: if the process has reserved more than this share of the memory that it may reserve,
// gives back the large segments that have been free for longest. Leaves out blocks that other streams still use. Waits
// for the work of all devices if it gives segments back.
void DeviceBlockCache::garbage_collect_cached_blocks(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context) {
  const size_t capacity = std::min(segments_.allowed_memory(), memory_info(device_).second);
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold() * static_cast<double>(capacity);
  const double excess = static_cast<double>(current(stats_.reserved_bytes)) - threshold;
  if (excess > 0) {
    release_blocks(lock, segments_.take_oldest(pools_.large_pools(), excess, context));
  }
}

// ---- memory pools

void DeviceBlockCache::release_pool(MempoolId_t id) {
  std::unique_lock lock(mutex());
  PoolSet& set = pools_.private_pools(id);
  TORCH_INTERNAL_ASSERT(set.use_count > 0);
  if (--set.use_count == 0) {
    std::vector<BlockPool*> pools;
    set.append_to(pools);
    release_blocks(lock, segments_.take_all(pools, nullptr));
    pools_.forget_empty_pools();
  }
}

// ---- history

void DeviceBlockCache::record_history(const std::optional<HistoryOptions>& options, bool clear) {
  const std::lock_guard lock(mutex());
  if (clear) {
    history_.clear();
  }
  if (options) {
    history_.start(*options);
  } else {
    history_.stop();
  }
}

std::vector<SegmentInfo> DeviceBlockCache::snapshot(MempoolId_t id) {
  const std::lock_guard lock(mutex());
  std::vector<SegmentInfo> segments;
  for (const auto& [address, block] : blocks_) {
    if (!block->previous && (id == MempoolId_t{0, 0} || block->pool->owner->id == id)) {
      segments.push_back(segment_info(block));
    }
  }
  history_.record(TraceEntry::SNAPSHOT, nullptr, current(stats_.active_bytes), 0, {0, 0}, nullptr);
  return segments;
}

std::vector<TraceEntry> DeviceBlockCache::trace(const std::function<time_t(approx_time_t)>& to_nanoseconds) {
  const std::lock_guard lock(mutex());
  return history_.entries(to_nanoseconds);
}

std::shared_ptr<GatheredContext> DeviceBlockCache::context_of(const void* pointer) {
  const std::lock_guard lock(mutex());
  const Block* block = find_block(pointer);
  return block && block->allocated ? block->context_when_allocated : nullptr;
}

} // namespace c10::openreg
