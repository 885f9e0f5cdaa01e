#include "runtime/memory/OpenRegCachingAllocator.h"

#include <openreg_activity.h>

#include <algorithm>
#include <optional>
#include <sstream>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

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

// Makes a segment, and params.block from it. The block is not in the pool's lists of free blocks. Returns false if the
// device has no room for the segment, or if the process may not have that much.
bool DeviceCachingAllocator::alloc_block(AllocParams& params) {
  params.alloc_size = get_allocation_size(params);
  if (current(stats.reserved_bytes) + params.alloc_size > allowed_memory) {
    return false;
  }
  void* address = nullptr;
  const ObservedCalls calls(CallKind::Internal); // the program does not know the segment
  std::optional<UnsafeCalls> unsafe;
  if (capture_of(params.stream) != 0) { // as CUDA's allocator: a capture gets its segments, and other streams get none
    unsafe.emplace();
  }
  const orError_t result = orMalloc(&address, params.alloc_size);
  if (result == orErrorMemoryAllocation) {
    return false;
  }
  OPENREG_CHECK(result);
  params.block = new Block(static_cast<char*>(address), params.alloc_size, device_, params.pool);
  params.block->context_when_segment_allocated = params.context;
  blocks.emplace(params.block->address, params.block);
  count_segment(params.block, true);
  record_trace(TraceEntry::SEGMENT_ALLOC, params.block, params.alloc_size, params.context);
  return true;
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

// Gives those free segments of `pools` back to the device for which `chosen` is true. Returns whether there was such a
// segment. Releases the lock meanwhile, because orFree() waits for the work of all devices.
bool DeviceCachingAllocator::release_blocks(
    std::unique_lock<Mutex>& lock, const std::vector<BlockPool*>& pools, const Context& context, const Chosen& chosen) {
  std::vector<std::unique_ptr<Block>> taken;
  for (BlockPool* pool : pools) {
    for (Block* segment : pool->free_segments()) {
      if (chosen(segment)) {
        check_may_free(device_);
        pool->remove(segment);
        count_segment(segment, false);
        record_trace(
            TraceEntry::SEGMENT_FREE,
            segment,
            segment->size,
            context ? context : segment->context_when_segment_allocated);
        taken.emplace_back(segment);
      }
    }
  }
  lock.unlock();
  for (const auto& segment : taken) {
    OPENREG_CHECK(orFree(segment->address));
  }
  lock.lock();
  return !taken.empty();
}

void DeviceState::count_segment(const Block* segment, bool is_new) {
  const StatType type = segment->pool->stat_type();
  PoolSet& owner = *segment->pool->owner;
  const auto change = [&](StatArray& stat, size_t amount) {
    if (is_new) {
      increase(stat, type, amount);
    } else {
      decrease(stat, type, amount);
    }
  };
  change(stats.segment, 1);
  change(stats.reserved_bytes, segment->size);
  if (owner.is_private()) {
    change(stats.reserved_bytes_by_private_pools[owner.id], segment->size);
  }
  if (is_oversize(segment->size)) {
    if (is_new) {
      stats.oversize_segments.increase(1);
    } else {
      stats.oversize_segments.decrease(1);
    }
  }
  ++(is_new ? stats.num_device_alloc : stats.num_device_free);
  owner.segments += is_new ? 1 : -1;
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
    if (!get_free_block(params) && !try_mempool_fallback(params)) { // a block that was kept from reuse
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

void DeviceCachingAllocator::release_cached_blocks(
    std::unique_lock<Mutex>& lock, const Context& context, MempoolId_t id) {
  synchronize_and_free_events(lock, context);
  idle_blocks.release(0);
  release_blocks(lock, pools.releasable_pools(id), context, [](const Block*) { return true; });
  pools.forget_empty_pools();
}

void DeviceCachingAllocator::synchronize_and_free_events(std::unique_lock<Mutex>& lock, const Context& context) {
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

// The age of the youngest free segment that must go, the oldest first, so that at least `wanted` bytes go.
static uint64_t age_of_youngest(const std::vector<BlockPool*>& pools, double wanted) {
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
  return youngest;
}

// garbage_collection_threshold: if the process has reserved more than this share of the memory that it may reserve,
// gives back the large segments that have been free for longest. Leaves out blocks that other streams still use. Waits
// for the work of all devices if it gives segments back.
void DeviceCachingAllocator::garbage_collect_cached_blocks(std::unique_lock<Mutex>& lock, const Context& context) {
  const size_t capacity = std::min(allowed_memory, memory_info(device_).second);
  const double threshold = AcceleratorAllocatorConfig::garbage_collection_threshold() * static_cast<double>(capacity);
  const double excess = static_cast<double>(current(stats.reserved_bytes)) - threshold;
  if (excess > 0) {
    const auto large_pools = pools.large_pools();
    const auto youngest = age_of_youngest(large_pools, excess);
    const auto chosen = [&](const Block* segment) { return segment->pool->age(segment) >= youngest; };
    release_blocks(lock, large_pools, context, chosen);
  }
}

// max_split_size_mb: a block of at least this size serves only requests of at least this size
// (BlockPool::find_merged()). Such blocks are given back first.
bool DeviceCachingAllocator::release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  size_t taken = 0;
  return release_blocks(lock, {params.pool}, params.context, [&](const Block* segment) {
    const bool chosen = is_oversize(segment->size) && taken < params.alloc_size;
    taken += chosen ? segment->size : 0;
    return chosen;
  });
}

// ---- observers

// Notifies the subscribers of openreg_activity.h that the block is freed, before another thread can get it. They look
// only at the address, so the size is that of the whole block.
C10_NOINLINE void DeviceCachingAllocator::note_free(const void* pointer) {
  std::unique_lock lock(mutex_);
  const Block* const block = find_block(pointer);
  if (block && block->pool->owner->is_of_graph()) {
    return; // its allocation was not noted either
  }
  const size_t size = block ? block->size : 0;
  const orStream_t stream = block ? OpenRegStream(stream_of(block)).stream() : nullptr;
  lock.unlock();
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
  const auto [event, idle] = observer()->before_reuse(block->address, block->size, stream_of(block));
  lock.lock();
  idle_blocks.set_limit(idle);
  block->held = event != nullptr;
  block->event_count = block->held;
  if (event) {
    events.insert(event, block);
  }
  return !event;
}

void IdleBlocks::set_limit(size_t limit) {
  limit_ = limit;
  release(limit);
}

void IdleBlocks::add(Block* block) {
  block->is_idle = true;
  blocks_.push_back(block);
  bytes_ += block->size;
  release(limit_);
}

bool IdleBlocks::release(size_t limit) {
  const size_t before = bytes_;
  while (bytes_ > limit) {
    Block* const oldest = blocks_.front();
    blocks_.pop_front();
    bytes_ -= oldest->size;
    oldest->is_idle = false;
    oldest->pool->put(oldest);
  }
  return bytes_ < before;
}

// ---- out of memory

static std::string format_size(size_t bytes) {
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

// To be called with the lock held.
static std::string out_of_memory_message(
    const DeviceState& state, DeviceIndex device, size_t requested, size_t device_free, size_t device_total) {
  const auto& words = identity.out_of_memory;
  const size_t allocated = current(state.stats.allocated_bytes);
  size_t in_private_pools = 0;
  for (const auto& [id, stat] : state.stats.reserved_bytes_by_private_pools) {
    in_private_pools += current(stat);
  }
  return c10::str(
      identity.name,
      " out of memory. Tried to allocate ",
      format_size(requested),
      ". ",
      words.device,
      " ",
      static_cast<int>(device),
      " has a total capacity of ",
      format_size(device_total),
      " of which ",
      format_size(device_free),
      " is free. ",
      words.process,
      " ",
      format_size(device_total - device_free),
      " memory in use. ",
      state.memory_fraction < 1 ? format_size(state.allowed_memory) + " allowed; " : "",
      "Of the allocated memory ",
      format_size(allocated),
      " is allocated by PyTorch",
      in_private_pools ? ", with " + format_size(in_private_pools) + " " + words.private_pools : "",
      ", and ",
      format_size(current(state.stats.reserved_bytes) - allocated),
      " is reserved by PyTorch but unallocated. ",
      words.advice);
}

void DeviceCachingAllocator::throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  ++stats.num_ooms;
  const auto [device_free, device_total] = memory_info(device_);
  history.record(
      TraceEntry::OOM,
      reinterpret_cast<void*>(device_free),
      params.requested_size,
      params.stream.id(),
      {0, 0},
      params.context);
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(params.requested_size),
      current(stats.allocated_bytes),
      current(stats.reserved_bytes),
      Device(identity.type, device_));
  const std::string message = out_of_memory_message(*this, device_, params.requested_size, device_free, device_total);
  const size_t allowed = memory_fraction < 1 ? allowed_memory : device_total;
  const auto observers = out_of_memory_observers;
  lock.unlock(); // an observer may wait for the GIL
  for (const auto& observer : observers) {
    observer(device_, params.requested_size, allowed, device_free);
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, message);
}

} // namespace c10::openreg
