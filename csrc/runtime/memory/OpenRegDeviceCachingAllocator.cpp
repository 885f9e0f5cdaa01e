#include "runtime/memory/OpenRegDeviceCachingAllocator.h"

#include <c10/core/impl/GPUTrace.h>
#include <openreg_activity.h>
#include <openreg_faults.h>

#include <algorithm>
#include <utility>

#include "runtime/memory/OpenRegAllocatorConfig.h"
#include "runtime/memory/OpenRegFreeMemoryCallback.h"
#include "runtime/memory/OpenRegOutOfMemory.h"
#include "runtime/memory/OpenRegPoison.h"
#include "runtime/memory/OpenRegRedZone.h"

namespace c10::openreg {

std::atomic<size_t> red_zone{0};

namespace {

using c10::CachingAllocator::AcceleratorAllocatorConfig;

bool should_split(const BlockPool& pool, size_t size, size_t remaining) {
  if (pool.owner->no_split) {
    return false;
  }
  return pool.is_small ? remaining >= kMinBlockSize
                       : remaining > kSmallSize && size < AcceleratorAllocatorConfig::max_split_size();
}

void begin_use(Block* block, size_t size, size_t requested_size) {
  BlockPool& pool = *block->pool;
  if (const size_t remaining = block->size - size; remaining > 0 && should_split(pool, size, remaining)) {
    pool.split(block, size);
  }
  block->allocated = true;
  block->requested_size = requested_size;
}

void end_temporary_use(Block* block) {
  block->allocated = false;
  block->pool->put(block);
}

// Whether an injected fault (torch.openreg.faults) makes the device appear full. Throws any other injected error.
bool meets_fault(DeviceIndex device, size_t size) {
  const orError_t error = orRequestAllocation(device, size);
  if (error != orErrorMemoryAllocation) {
    OPENREG_CHECK(error);
  }
  return error == orErrorMemoryAllocation;
}
} // namespace

// ---- allocating

char* DeviceCachingAllocator::malloc(size_t requested_size, bool required, bool for_kernel) {
  AllocParams params{
      current_stream(device_), requested_size, required, for_kernel, history_.gather(RecordContext::STATE)};
  bool is_full = false;
  if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
    is_full = meets_fault(device_, requested_size);
  }
  std::unique_lock lock(mutex_);
  params.size = round_size(requested_size);
  if (const size_t added = red_zone.load(std::memory_order_relaxed); C10_UNLIKELY(added != 0)) {
    const size_t size = round_size(requested_size + added);
    params.red_zone = size - std::exchange(params.size, size);
  }
  if (C10_UNLIKELY(is_full)) {
    throw_out_of_memory(lock, params);
  }
  if (C10_UNLIKELY(!events_.empty())) {
    process_events(lock, params.context);
  }
  params.pool = &pools_.get_pool(params.size, params.stream);
  if (C10_UNLIKELY(!get_free_block(params)) && !get_new_block(lock, params)) {
    return nullptr;
  }
  alloc_found_block(params);
  char* const address = params.block->address;
  lock.unlock();
  if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
    // The size without rounding and red zone, because the sanitizer computes from it where the red zone begins.
    orNoteAllocation(address, requested_size, stream_handle(params.stream));
  }
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
    (*trace)->trace_gpu_memory_allocation(DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(address));
  }
  return address;
}

C10_ALWAYS_INLINE void DeviceCachingAllocator::alloc_found_block(const AllocParams& params) {
  Block* const block = params.block;
  begin_use(block, params.size, params.requested_size);
  block->red_zone = params.red_zone;
  block->context_when_allocated = params.context;
  const StatType type = block->pool->stat_type();
  increase(stats_.allocation, type, 1);
  increase(stats_.allocated_bytes, type, block->counted_size());
  increase(stats_.requested_bytes, type, params.requested_size);
  increase(stats_.active, type, 1);
  increase(stats_.active_bytes, type, block->counted_size());
  if (C10_UNLIKELY(is_oversize(block->size))) {
    stats_.oversize_allocations.increase(1);
  }
  record_trace(TraceEntry::ALLOC, block, params.requested_size, params.context);
  report(block, static_cast<int64_t>(block->counted_size()));
}

// Called when no cached block fits: makes a segment. If the device has no memory for the segment, gives cached memory
// back, step by step, and tries again. If this fails too, takes a free block of a MemPool with use_on_oom. If there is
// none, throws torch.OutOfMemoryError if the request is required, and otherwise returns false.
C10_NOINLINE bool DeviceCachingAllocator::get_new_block(std::unique_lock<Mutex>& lock, AllocParams& params) {
  if (AcceleratorAllocatorConfig::garbage_collection_threshold() > 0) {
    garbage_collect_cached_blocks(lock, params.context);
  }
  params.alloc_size = get_allocation_size(params.pool->is_small, params.size);
  const CurrentDevice current(device_);
  bool found = alloc_block(params) || (release_available_cached_blocks(lock, params) && alloc_block(params));
  if (!found) {
    lock.unlock();
    trigger_free_memory_callbacks();
    lock.lock();
    release_cached_blocks(lock, params.context, {0, 0});
    ++stats_.num_alloc_retries;
    found = alloc_block(params);
  }
  if (!found && try_mempool_fallback(params)) {
    return true; // this is a cached block, which holds poison already
  }
  if (!found && params.required) {
    throw_out_of_memory(lock, params);
  }
  if (C10_UNLIKELY(poison_) && found) {
    lock.unlock();           // no other thread can find the block yet
    if (params.for_kernel) { // its memory must be poisoned before the kernel goes on
      poison_now(params.block->address, params.block->size);
    } else {
      queue_poison(params.block);
    }
    lock.lock();
  }
  return found;
}

bool DeviceCachingAllocator::alloc_block(AllocParams& params) {
  params.block = segments_.alloc(*params.pool, params.alloc_size, params.context);
  return params.block != nullptr;
}

bool DeviceCachingAllocator::try_mempool_fallback(AllocParams& params) {
  if (!params.pool->owner->is_private()) {
    params.block = pools_.find_in_lending_pools(params.size, params.stream.id());
  }
  return params.block != nullptr;
}

void DeviceCachingAllocator::throw_out_of_memory(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  ++stats_.num_ooms;
  const auto [device_free, device_total] = memory_info(device_);
  const bool limited = segments_.memory_fraction() < 1;
  const OutOfMemory facts{
      device_,
      params.requested_size,
      device_free,
      device_total,
      limited ? std::optional(segments_.allowed_memory()) : std::nullopt,
      static_cast<size_t>(current(stats_.allocated_bytes)),
      static_cast<size_t>(current(stats_.reserved_bytes)),
      reserved_by_private_pools(stats_)};
  history_.record(
      TraceEntry::OOM,
      reinterpret_cast<void*>(device_free),
      params.requested_size,
      params.stream.id(),
      {0, 0},
      params.context);
  c10::reportOutOfMemoryToProfiler(
      static_cast<int64_t>(params.requested_size),
      facts.allocated,
      facts.reserved,
      Device(DeviceType::PrivateUse1, device_));
  const auto observers = observers_;
  lock.unlock(); // an observer may wait for the GIL
  for (const auto& observer : observers) {
    observer(device_, params.requested_size, facts.allowed.value_or(device_total), device_free);
  }
  openreg::throw_out_of_memory(facts);
}

char* DeviceCachingAllocator::malloc_temporary(size_t requested_size) {
  std::unique_lock lock(mutex_);
  AllocParams params{
      Stream(Stream::DEFAULT, Device(DeviceType::PrivateUse1, device_)), requested_size, false, true, {}};
  params.size = round_size(requested_size);
  params.pool = &pools_.get_pool_of_temporaries(params.size);
  params.alloc_size = get_allocation_size(params.pool->is_small, params.size);
  if (!get_free_block(params) && !alloc_block(params)) {
    return nullptr;
  }
  begin_use(params.block, params.size, requested_size);
  char* const address = params.block->address;
  const size_t size = params.block->size;
  lock.unlock();
  if (C10_UNLIKELY(orIsObserved(orActivityAllocation))) {
    orNoteAllocation(address, size, nullptr); // the whole block, which has no red zone
  }
  if (C10_UNLIKELY(poison_)) {
    poison_now(address, size);
  }
  return address;
}

// ---- freeing

void DeviceCachingAllocator::free(const void* pointer) {
  const auto context = history_.gather(RecordContext::ALL);
  if (C10_UNLIKELY(orIsObserved(orActivityFree))) {
    note_free(pointer);
  }
  {
    std::unique_lock lock(mutex_);
    Block* block = block_at(pointer);
    TORCH_CHECK(block && block->allocated, "invalid device pointer: ", pointer);
    if (C10_UNLIKELY(block->pool->owner->of_temporaries)) { // made by malloc_temporary()
      return end_temporary_use(block);
    }
    const StatType type = block->pool->stat_type();
    block->allocated = false;
    decrease(stats_.allocation, type, 1);
    decrease(stats_.allocated_bytes, type, block->counted_size());
    decrease(stats_.requested_bytes, type, block->requested_size);
    if (C10_UNLIKELY(is_oversize(block->size))) {
      stats_.oversize_allocations.decrease(1);
    }
    record_trace(
        TraceEntry::FREE_REQUESTED, block, block->requested_size, context ? context : block->context_when_allocated);
    report(block, -static_cast<int64_t>(block->counted_size()));
    if (C10_UNLIKELY(!block->stream_uses.empty())) {
      events_.insert_events(block);
    } else if (C10_LIKELY(!poison_) || poison_before_reuse(lock, block)) {
      free_block(block, context);
    }
  }
  if (const auto* trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace)) {
    (*trace)->trace_gpu_memory_deallocation(
        DeviceType::PrivateUse1, reinterpret_cast<uintptr_t>(orGetDevicePointer(pointer)));
  }
}

void DeviceCachingAllocator::free_temporary(const void* pointer) {
  if (C10_UNLIKELY(orIsObserved(orActivityFree))) {
    note_free(pointer);
  }
  const std::lock_guard lock(mutex_);
  end_temporary_use(find_block(pointer));
}

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

// max_split_size_mb: a block of at least this size serves only requests of at least this size
// (BlockPool::find_merged()). Such blocks are given back first.
bool DeviceCachingAllocator::release_available_cached_blocks(std::unique_lock<Mutex>& lock, const AllocParams& params) {
  const auto segments = segments_.take_oversize(*params.pool, params.alloc_size, params.context);
  release_blocks(lock, segments);
  return !segments.empty();
}

// ---- observers and reports

void DeviceCachingAllocator::attach_out_of_memory_observer(OutOfMemoryObserver observer) {
  const std::lock_guard lock(mutex());
  observers_.push_back(std::move(observer));
}

// Tells the subscribers of openreg_activity.h that the block is freed, before another thread can get it. They look only
// at the address, so the size is that of the whole block.
C10_NOINLINE void DeviceCachingAllocator::note_free(const void* pointer) {
  size_t size = 0;
  orStream_t stream = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const Block* block = find_block(pointer)) {
      size = block->size;
      stream = block->pool->owner->of_temporaries ? nullptr : stream_handle(stream_of(block));
    }
  }
  orNoteFree(orGetDevicePointer(pointer), size, stream);
}

void DeviceCachingAllocator::report(const Block* block, int64_t bytes) const {
  c10::reportMemoryUsageToProfiler(
      block->address,
      bytes,
      current(stats_.allocated_bytes),
      current(stats_.reserved_bytes),
      Device(DeviceType::PrivateUse1, device_));
}

} // namespace c10::openreg
