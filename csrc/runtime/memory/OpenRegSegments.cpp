#include "runtime/memory/OpenRegCachingAllocator.h"

#include <openreg_activity.h>

#include <algorithm>
#include <sstream>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"

// What a request needs rarely. Segments come from the device if no cached block fits a request. They go back to it when
// the cache is emptied, when garbage is collected, and when the device has no room. If the device still has no room
// then, the allocator throws torch.OutOfMemoryError. And what the allocator asks its observers, if it has any.
namespace c10::openreg {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

C10_DEFINE_REGISTRY(FreeMemoryCallbacksRegistry, FreeMemoryCallback);

void trigger_free_memory_callbacks() {
  for (const auto& name : FreeMemoryCallbacksRegistry()->Keys()) {
    FreeMemoryCallbacksRegistry()->Create(name)->Execute();
  }
}

// ---- segments

std::pair<size_t, size_t> memory_info(DeviceIndex device) {
  const CurrentDevice current(device);
  size_t free = 0, total = 0;
  OPENREG_CHECK(orMemGetInfo(&free, &total));
  return {free, total};
}

std::vector<Block*> BlockPool::free_segments() {
  merge_bins();
  std::vector<Block*> found;
  std::copy_if(
      merged_.begin(), merged_.end(), std::back_inserter(found), [](Block* block) { return !block->is_split(); });
  return found;
}

void BlockPool::remove(Block* segment) {
  merged_.erase(segment);
  blocks_->erase(segment->address);
}

Block* DeviceSegments::alloc(BlockPool& pool, size_t size, const Context& context) {
  if (current(stats_->reserved_bytes) + size > allowed_memory_) {
    return nullptr;
  }
  void* address = nullptr;
  const ObservedCalls calls(CallKind::Internal); // the program does not know the segment
  const UnsafeCalls unsafe;                      // as CUDA's allocator: a capture gets its segments
  const orError_t result = orMalloc(&address, size);
  if (result == orErrorMemoryAllocation) {
    return nullptr;
  }
  OPENREG_CHECK(result);
  auto* segment = new Block(static_cast<char*>(address), size, device_, &pool);
  segment->context_when_segment_allocated = context;
  blocks_->emplace(segment->address, segment);
  count(*segment, true);
  record(TraceEntry::SEGMENT_ALLOC, *segment, context);
  return segment;
}

// Refuses to give a segment back if a capture would refuse it. Otherwise the segment would be lost.
static void check_may_free(DeviceIndex device) {
  if (orMayCapture()) {
    const orEvent_t event = create_event(getDefaultOpenRegStream(device));
    const orError_t error = orEventQuery(event); // unsafe (openreg_graph.h), as orFree() is
    orEventDestroy(event);
    OPENREG_CHECK(error);
  }
}

// Removes those free segments of `pools` for which `chosen(block)` is true.
template <class Chosen>
DeviceSegments::Segments DeviceSegments::take(
    const std::vector<BlockPool*>& pools, const Context& context, const Chosen& chosen) {
  Segments taken;
  for (BlockPool* pool : pools) {
    for (Block* segment : pool->free_segments()) {
      if (chosen(segment)) {
        check_may_free(device_);
        pool->remove(segment);
        count(*segment, false);
        record(TraceEntry::SEGMENT_FREE, *segment, context ? context : segment->context_when_segment_allocated);
        taken.emplace_back(segment);
      }
    }
  }
  return taken;
}

DeviceSegments::Segments DeviceSegments::take_all(const std::vector<BlockPool*>& pools, const Context& context) {
  return take(pools, context, [](const Block*) { return true; });
}

DeviceSegments::Segments DeviceSegments::take_oversize(BlockPool& pool, size_t wanted, const Context& context) {
  size_t taken = 0;
  return take({&pool}, context, [&](const Block* block) {
    const bool chosen = is_oversize(block->size) && taken < wanted;
    taken += chosen ? block->size : 0;
    return chosen;
  });
}

DeviceSegments::Segments DeviceSegments::take_oldest(
    const std::vector<BlockPool*>& pools, double wanted, const Context& context) {
  std::multimap<uint64_t, size_t, std::greater<>> free_segments; // bytes by age, oldest first
  for (BlockPool* pool : pools) {
    for (const Block* segment : pool->free_segments()) {
      free_segments.emplace(pool->age(segment), segment->size);
    }
  }
  double taken = 0;
  uint64_t youngest = std::numeric_limits<uint64_t>::max();
  for (auto it = free_segments.begin(); it != free_segments.end() && taken < wanted; ++it) {
    taken += static_cast<double>(it->second);
    youngest = it->first;
  }
  return take(pools, context, [&](const Block* block) { return block->pool->age(block) >= youngest; });
}

void DeviceSegments::free(const Segments& segments) {
  for (const auto& segment : segments) {
    OPENREG_CHECK(orFree(segment->address));
  }
}

void DeviceSegments::count(const Block& segment, bool is_new) {
  const BlockPool& pool = *segment.pool;
  const auto change = [&](StatArray& stat, size_t amount) {
    if (is_new) {
      increase(stat, pool.stat_type(), amount);
    } else {
      decrease(stat, pool.stat_type(), amount);
    }
  };
  change(stats_->segment, 1);
  change(stats_->reserved_bytes, segment.size);
  if (pool.owner->is_private()) {
    change(stats_->reserved_bytes_by_private_pools[pool.owner->id], segment.size);
  }
  if (is_oversize(segment.size)) {
    if (is_new) {
      stats_->oversize_segments.increase(1);
    } else {
      stats_->oversize_segments.decrease(1);
    }
  }
  ++(is_new ? stats_->num_device_alloc : stats_->num_device_free);
  pool.owner->segments += is_new ? 1 : -1;
}

void DeviceSegments::record(TraceEntry::Action action, const Block& segment, const Context& context) {
  history_->record(action, segment.address, segment.size, segment.pool->stream, segment.pool->owner->id, context);
}

// ---- a request that no cached block fits

// Called when no cached block fits: makes a segment. If the device has no memory for the segment, gives cached memory
// back, step by step, and tries again. If this fails too, takes a free block of a MemPool with use_on_oom. If there is
// none, throws torch.OutOfMemoryError.
void DeviceCachingAllocator::get_new_block(std::unique_lock<Mutex>& lock, AllocParams& params) {
  if (AcceleratorAllocatorConfig::garbage_collection_threshold() > 0) {
    garbage_collect_cached_blocks(lock, params.context);
  }
  const CurrentDevice current(device_);
  bool found = alloc_block(params) || (release_available_cached_blocks(lock, params) && alloc_block(params));
  if (!found) {
    lock.unlock();
    trigger_free_memory_callbacks();
    lock.lock();
    release_cached_blocks(lock, params.context, {0, 0});
    ++stats.num_alloc_retries;
    found = alloc_block(params);
  }
  if (!found) {
    if (!try_mempool_fallback(params)) {
      throw_out_of_memory(lock, params);
    }
    return; // a cached block, no new memory
  }
  if (RuntimeObserver* const known = observer()) {
    lock.unlock(); // no other thread can find the block yet
    known->after_segment_alloc(params.block->address, params.block->size);
    lock.lock();
  }
}

bool DeviceCachingAllocator::try_mempool_fallback(AllocParams& params) {
  if (!params.pool->owner->is_private()) {
    params.block = pools.find_in_use_on_oom_pools(params.size, params.stream.id());
  }
  return params.block != nullptr;
}

// ---- giving memory back

void DeviceCachingAllocator::emptyCache(MempoolId_t id) {
  const auto context = history.gather(RecordContext::ALL);
  std::unique_lock lock(mutex());
  release_cached_blocks(lock, context, id);
}

// Gives the segments back to the device. Releases the lock meanwhile, because DeviceSegments::free() waits for the
// device.
void DeviceCachingAllocator::release_blocks(std::unique_lock<Mutex>& lock, const DeviceSegments::Segments& taken) {
  lock.unlock();
  DeviceSegments::free(taken);
  lock.lock();
}

void DeviceCachingAllocator::release_cached_blocks(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context, MempoolId_t id) {
  synchronize_and_free_events(lock, context);
  release_blocks(lock, segments.take_all(pools.releasable_pools(id), context));
  pools.forget_empty_pools();
}

void DeviceCachingAllocator::synchronize_and_free_events(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context) {
  if (orMayCapture()) { // as CUDA's allocator
    return;
  }
  ++stats.num_sync_all_streams;
  // A block may wait twice: for the other streams, and then for the observer's event.
  for (int pass = 0; pass < (observer() ? 2 : 1) && !events.empty(); ++pass) {
    lock.unlock();
    device_synchronize(device_);
    lock.lock();
    process_events(lock, context);
  }
}

// garbage_collection_threshold: if the process has reserved more than this share of the memory that it may reserve,
// gives back the large segments that have been free for longest. Leaves out blocks that other streams still use. Waits
// for the work of all devices if it gives segments back.
void DeviceCachingAllocator::garbage_collect_cached_blocks(
    std::unique_lock<Mutex>& lock, const std::shared_ptr<GatheredContext>& context) {
  const size_t capacity = std::min(segments.allowed_memory(), memory_info(device_).second);
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold() * static_cast<double>(capacity);
  const double excess = static_cast<double>(current(stats.reserved_bytes)) - threshold;
  if (excess > 0) {
    release_blocks(lock, segments.take_oldest(pools.large_pools(), excess, context));
  }
}

// max_split_size_mb: a block of at least this size serves only requests of at least this size
// (BlockPool::find_merged()). Such blocks are given back first.
bool DeviceCachingAllocator::release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  const auto taken = segments.take_oversize(*params.pool, params.alloc_size, params.context);
  release_blocks(lock, taken);
  return !taken.empty();
}

// ---- observers

// Notifies the subscribers of openreg_activity.h that the block is freed, before another thread can get it. They look
// only at the address, so the size is that of the whole block.
C10_NOINLINE void DeviceCachingAllocator::note_free(const void* pointer) {
  size_t size = 0;
  orStream_t stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const Block* block = find_block(pointer)) {
      if (block->pool->owner->is_of_graph()) {
        return; // its allocation was not noted either
      }
      size = block->size;
      stream = OpenRegStream(stream_of(block)).stream();
    }
  }
  orNoteFree(orGetDevicePointer(pointer), size, stream);
}

// Whether the block may be reused now, as far as the observer knows. If it may not, the block waits for the observer's
// event, as it would wait for another stream.
C10_NOINLINE bool DeviceCachingAllocator::may_reuse(std::unique_lock<Mutex>& lock, Block* block) {
  if (std::exchange(block->held, false)) {
    return true; // the observer's event has passed
  }
  block->event_count = 1; // so that no neighbour merges with the block
  lock.unlock();
  const orEvent_t event = observer()->before_reuse(block->address, block->size, stream_of(block));
  lock.lock();
  if (event) {
    block->held = true;
    events.insert(event, block);
  } else {
    block->event_count = 0;
  }
  return !event;
}

// ---- out of memory

namespace {

std::string format_size(size_t bytes) {
  std::ostringstream out;
  out.precision(2);
  out << std::fixed;
  if (bytes < 1024) {
    out << bytes << " bytes";
  } else if (bytes < 1 << 20) {
    out << bytes / 1024.0 << " KiB";
  } else if (bytes < 1 << 30) {
    out << bytes / 1048576.0 << " MiB";
  } else {
    out << bytes / 1073741824.0 << " GiB";
  }
  return out.str();
}

} // namespace

void DeviceCachingAllocator::throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  ++stats.num_ooms;
  const auto [device_free, device_total] = memory_info(device_);
  const bool is_limited = segments.memory_fraction() < 1;
  const size_t allowed = is_limited ? segments.allowed_memory() : device_total;
  const size_t allocated = current(stats.allocated_bytes);
  const size_t reserved = current(stats.reserved_bytes);
  const size_t in_private_pools = reserved_by_private_pools(stats);
  history.record(
      TraceEntry::OOM,
      reinterpret_cast<void*>(device_free),
      params.requested_size,
      params.stream.id(),
      {0, 0},
      params.context);
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(params.requested_size), allocated, reserved, Device(identity.type, device_));
  const auto observers = out_of_memory_observers;
  lock.unlock(); // an observer may wait for the GIL
  for (const auto& observer : observers) {
    observer(device_, params.requested_size, allowed, device_free);
  }
  const auto& words = identity.out_of_memory;
  TORCH_CHECK_WITH(
      OutOfMemoryError,
      false,
      identity.name,
      " out of memory. Tried to allocate ",
      format_size(params.requested_size),
      ". ",
      words.device,
      " ",
      static_cast<int>(device_),
      " has a total capacity of ",
      format_size(device_total),
      " of which ",
      format_size(device_free),
      " is free. ",
      words.process,
      " ",
      format_size(device_total - device_free),
      " memory in use. ",
      is_limited ? format_size(allowed) + " allowed; " : "",
      "Of the allocated memory ",
      format_size(allocated),
      " is allocated by PyTorch",
      in_private_pools ? ", with " + format_size(in_private_pools) + " " + words.private_pools : "",
      ", and ",
      format_size(reserved - allocated),
      " is reserved by PyTorch but unallocated. ",
      words.advice);
}

} // namespace c10::openreg
