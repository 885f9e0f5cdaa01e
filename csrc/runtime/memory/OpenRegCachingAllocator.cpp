#include "runtime/memory/OpenRegCachingAllocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>
#include <openreg_graph.h>
#include <openreg_progress.h>

#include <algorithm>
#include <utility>

#include "runtime/OpenRegIdentity.h"

// The life of a block: sizes, the pools with splitting and merging, malloc(), free(), and the events of other streams.
//
// Rules:
//   - One lock guards everything of a device. A thread that holds it never waits, for the device or for anything else.
//     A function with a `lock` parameter releases the lock while it waits or calls foreign code, and holds the lock
//     again when it returns. All other functions that are not public are called with the lock held.
//   - A segment is what one orMalloc() gave, and a block is a piece of a segment. The blocks of a segment form a list
//     in the order of their addresses. A block belongs to the stream from which it was allocated.
//   - Blocks of up to 1 MiB and larger blocks come from different segments, and from different pools.
namespace c10::openreg {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

// ---- sizes

// The size of the block for a request of `size` bytes: a multiple of the alignment. If roundup_power2_divisions is n,
// the range from one power of two to the next has n equal steps, and a size above 512 * n bytes is first rounded up
// to a step.
static size_t round_size(size_t size) {
  const size_t alignment = block_alignment();
  return std::max((round_up_to_division(size) + alignment - 1) & ~(alignment - 1), alignment);
}

size_t get_allocation_size(const AllocParams& params) {
  using namespace c10::CachingAllocator;
  if (params.pool->is_small) {
    return kSmallBuffer;
  }
  if (C10_UNLIKELY(params.has_padding)) { // the block fills the segment: an observer may watch the addresses behind it
    return params.size;
  }
  return params.size < kMinLargeAlloc ? AcceleratorAllocatorConfig::large_segment_size()
                                      : (params.size + kRoundLarge - 1) / kRoundLarge * kRoundLarge;
}

static bool should_split(const BlockPool& pool, size_t size, size_t remaining) {
  if (pool.owner->no_split) {
    return false;
  }
  return pool.is_small ? remaining >= kMinBlockSize
                       : remaining > kSmallSize && size < AcceleratorAllocatorConfig::max_split_size();
}

// ---- pools

void BlockPool::take(Block* block) {
  remove_from_inactive_stats(block);
  merged_.erase(block);
}

C10_NOINLINE Block* BlockPool::find_merged(size_t size) {
  // max_split_size_mb works as in CUDA's allocator: a free block of at least this size is not split. So only a request
  // of at least this size gets such a block, and only if little of the block is wasted.
  const size_t limit = AcceleratorAllocatorConfig::max_split_size();
  for (;;) {
    Block key(nullptr, size, 0, this);
    const auto fit = merged_.lower_bound(&key);
    if (fit != merged_.end()) {
      Block* block = *fit;
      const bool wasteful = size < limit
                                ? block->size >= limit
                                : block->size >= size + AcceleratorAllocatorConfig::max_non_split_rounding_size();
      if (C10_UNLIKELY(wasteful)) {
        return nullptr;
      }
      merged_.erase(fit);
      remove_from_inactive_stats(block);
      return block;
    }
    if (binned_ == 0) {
      return nullptr;
    }
    merge_bins();
  }
}

void BlockPool::merge_bins() {
  if (binned_ == 0) {
    return;
  }
  for (Block*& bin : bins_) {
    while (Block* block = bin) {
      bin = block->next_in_bin;
      block->binned = false;
      remove_from_inactive_stats(block);
      merge(block);
    }
  }
  binned_ = 0;
}

void BlockPool::merge(Block* block) {
  const auto absorb = [&](Block* left, Block* right) {
    left->size += right->size;
    left->freed_at = std::max(left->freed_at, right->freed_at);
    left->next = right->next;
    if (right->next) {
      right->next->previous = left;
    }
    blocks_->erase(right->address);
    delete right;
    return left;
  };
  const auto take_out = [&](Block* other) {
    if (!other || other->allocated || other->binned || other->is_idle || other->event_count > 0) {
      return false;
    }
    take(other);
    return true;
  };
  if (take_out(block->next)) {
    absorb(block, block->next);
  }
  if (take_out(block->previous)) {
    block = absorb(block->previous, block);
  }
  merged_.insert(block);
  add_to_inactive_stats(block);
}

void BlockPool::split(Block* block, size_t size) {
  auto* rest = new Block(block->address + size, block->size - size, block->device, this);
  rest->freed_at = block->freed_at;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next) {
    rest->next->previous = rest;
  }
  block->next = rest;
  block->size = size;
  blocks_->emplace(rest->address, rest);
  merged_.insert(rest);
  add_to_inactive_stats(rest);
}

// Returns the lock; throws in a forked child. Another thread of the parent may have held the lock at the fork, and the
// tables behind the lock describe device memory that the child does not have.
Mutex& DeviceCachingAllocator::mutex() {
  check_not_forked();
  return mutex_;
}

Stream stream_of(const Block* block) {
  return Stream(Stream::UNSAFE, Device(identity.type, block->device), block->pool->stream);
}

// ---- allocating

char* DeviceCachingAllocator::malloc(size_t size) {
  AllocParams params{getCurrentOpenRegStream(device_), size, history.gather(RecordContext::STATE)};
  params.size = round_size(size);
  if (C10_UNLIKELY(observer() != nullptr)) {
    ask_before_alloc(params);
  }
  std::unique_lock lock(mutex_);
  if (C10_UNLIKELY(!events.empty())) {
    process_events(lock, params.context);
  }
  params.pool = &pools.get_pool(params.size, params.stream);
  if (C10_UNLIKELY(!get_free_block(params))) {
    get_new_block(lock, params);
  }
  char* const address = alloc_found_block(params);
  lock.unlock();
  // A graph keeps its memory, and each replay uses it in the forms of all tensors that the capture had there.
  if (C10_UNLIKELY(orIsObserved(orActivityAllocation)) && !params.pool->owner->is_of_graph()) {
    orNoteAllocation(address, size, OpenRegStream(params.stream).stream());
  }
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
    (*trace)->trace_gpu_memory_allocation(identity.type, reinterpret_cast<uintptr_t>(address));
  }
  return address;
}

C10_NOINLINE void DeviceCachingAllocator::ask_before_alloc(AllocParams& params) {
  const std::optional<size_t> padding = observer()->before_alloc(device_, params.requested_size);
  if (!padding) {
    std::unique_lock lock(mutex_);
    throw_out_of_memory(lock, params);
  }
  const size_t size = round_size(params.requested_size + *padding);
  params.padding = size - std::exchange(params.size, size);
  params.has_padding = *padding != 0;
}

C10_ALWAYS_INLINE char* DeviceState::alloc_found_block(const AllocParams& params) {
  Block* const block = params.block;
  if (const size_t remaining = block->size - params.size;
      remaining > 0 && should_split(*block->pool, params.size, remaining)) {
    block->pool->split(block, params.size);
  }
  block->allocated = true;
  block->requested_size = params.requested_size;
  block->padding = params.padding;
  block->context_when_allocated = params.context;
  const StatType type = block->pool->stat_type();
  increase(stats.allocation, type, 1);
  increase(stats.allocated_bytes, type, block->counted_size());
  increase(stats.requested_bytes, type, params.requested_size);
  increase(stats.active, type, 1);
  increase(stats.active_bytes, type, block->counted_size());
  if (C10_UNLIKELY(is_oversize(block->size))) {
    stats.oversize_allocations.increase(1);
  }
  record_trace(TraceEntry::ALLOC, block, params.requested_size, params.context);
  report(block, static_cast<int64_t>(block->counted_size()));
  return block->address;
}

// ---- freeing

C10_ALWAYS_INLINE void DeviceState::release_block(Block* block, const Context& context) {
  block->allocated = false;
  const StatType type = block->pool->stat_type();
  decrease(stats.allocation, type, 1);
  decrease(stats.allocated_bytes, type, block->counted_size());
  decrease(stats.requested_bytes, type, block->requested_size);
  if (C10_UNLIKELY(is_oversize(block->size))) {
    stats.oversize_allocations.decrease(1);
  }
  record_trace(
      TraceEntry::FREE_REQUESTED, block, block->requested_size, context ? context : block->context_when_allocated);
  report(block, -static_cast<int64_t>(block->counted_size()));
}

C10_ALWAYS_INLINE void DeviceState::free_block(Block* block, const Context& context) {
  decrease(stats.active, block->pool->stat_type(), 1);
  decrease(stats.active_bytes, block->pool->stat_type(), block->counted_size());
  record_trace(
      TraceEntry::FREE_COMPLETED, block, block->requested_size, context ? context : block->context_when_allocated);
  block->context_when_allocated.reset();
  if (C10_UNLIKELY(idle_blocks.takes(block))) {
    idle_blocks.add(block);
  } else {
    block->pool->put(block);
  }
}

void DeviceCachingAllocator::free(const void* pointer) {
  const auto context = history.gather(RecordContext::ALL);
  if (C10_UNLIKELY(orIsObserved(orActivityFree))) {
    note_free(pointer);
  }
  {
    std::unique_lock lock(mutex_);
    Block* block = find_block(pointer);
    TORCH_CHECK(block && block->allocated, "invalid device pointer: ", pointer);
    release_block(block, context);
    if (C10_UNLIKELY(!block->stream_uses.empty())) {
      events.insert_events(block);
    } else if (C10_LIKELY(observer() == nullptr) || may_reuse(lock, block)) {
      free_block(block, context);
    }
  }
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
    (*trace)->trace_gpu_memory_deallocation(identity.type, reinterpret_cast<uintptr_t>(orGetDevicePointer(pointer)));
  }
}

void DeviceState::report(const Block* block, int64_t bytes) const {
  c10::reportMemoryUsageToProfiler(
      block->address,
      bytes,
      current(stats.allocated_bytes),
      current(stats.reserved_bytes),
      Device(identity.type, block->device));
}

char* DeviceState::alloc_taken_block(const AllocParams& params) {
  return alloc_found_block(params);
}

void DeviceState::free_at_rest(Block* block) {
  release_block(block, nullptr);
  free_block(block, nullptr);
}

// ---- the events of other streams

void DeviceCachingAllocator::recordStream(const void* pointer, Stream stream) {
  const std::lock_guard lock(mutex());
  Block* block = find_block(pointer);
  if (!block) {
    return;
  }
  auto& streams = block->stream_uses;
  if (stream != stream_of(block) && std::find(streams.begin(), streams.end(), stream) == streams.end()) {
    streams.push_back(stream);
  }
}

void BlockEvents::insert_events(Block* block) {
  if (orMayCapture()) { // as CUDA's allocator: in a capture an event stands for no moment of the device
    deferred_.push_back(block);
    ++block->event_count; // so that no neighbour merges with the block
    return;
  }
  const ObservedCalls calls(CallKind::Internal);
  for (const Stream& stream : block->stream_uses) {
    const orEvent_t event = create_event(stream);
    OPENREG_CHECK(orEventRecord(event, OpenRegStream(stream).stream()));
    insert(event, block);
    ++block->event_count;
  }
  block->stream_uses.clear();
}

std::vector<Block*> BlockEvents::take_finished() {
  for (Block* block : std::exchange(deferred_, {})) {
    --block->event_count;
    insert_events(block);
  }
  std::vector<Block*> finished;
  std::erase_if(events_, [&](const auto& entry) {
    const auto [event, block] = entry;
    if (orEventPeek(event) == orErrorNotReady) {
      return false;
    }
    orEventDestroy(event);
    if (block->event_count == 1) {
      finished.push_back(block);
    } else {
      --block->event_count;
    }
    return true;
  });
  return finished;
}

// Frees the blocks whose events have passed.
void DeviceCachingAllocator::process_events(std::unique_lock<Mutex>& lock, const Context& context) {
  if (orMayCapture()) { // as CUDA's allocator: a query could invalidate the capture
    return;
  }
  for (Block* block : events.take_finished()) {
    if (observer() == nullptr || may_reuse(lock, block)) {
      block->event_count = 0;
      free_block(block, context);
    }
  }
}

} // namespace c10::openreg
