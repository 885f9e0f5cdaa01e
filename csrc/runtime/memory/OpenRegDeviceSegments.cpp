#include "runtime/memory/OpenRegDeviceSegments.h"

#include <map>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegInternalUse.h"
#include "runtime/memory/OpenRegAllocatorConfig.h"

namespace c10::openreg {

std::pair<size_t, size_t> memory_info(DeviceIndex device) {
  const CurrentDevice current(device);
  size_t free = 0, total = 0;
  OPENREG_CHECK(orMemGetInfo(&free, &total));
  return {free, total};
}

Block* DeviceSegments::alloc(BlockPool& pool, size_t size, const Context& context) {
  if (current(stats_->reserved_bytes) + size > allowed_memory_) {
    return nullptr;
  }
  void* address = nullptr;
  const InternalUse internal;
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

// Removes those free segments of `pools` for which `chosen(block)` is true.
template <class Chosen>
DeviceSegments::Segments DeviceSegments::take(
    const std::vector<BlockPool*>& pools, const Context& context, const Chosen& chosen) {
  Segments segments;
  for (BlockPool* pool : pools) {
    pool->take_segments([&](Block* block) { return chosen(block) && (segments.emplace_back(block), true); });
  }
  for (const auto& segment : segments) {
    count(*segment, false);
    record(TraceEntry::SEGMENT_FREE, *segment, context ? context : segment->context_when_segment_allocated);
  }
  return segments;
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
    pool->take_segments([&](const Block* block) {
      free_segments.emplace(pool->age(block), block->size);
      return false;
    });
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
    is_new ? increase(stat, pool.stat_type(), amount) : decrease(stat, pool.stat_type(), amount);
  };
  change(stats_->segment, 1);
  change(stats_->reserved_bytes, segment.size);
  if (pool.owner->is_private()) {
    change(stats_->reserved_bytes_by_private_pools[pool.owner->id], segment.size);
  }
  if (is_oversize(segment.size)) {
    is_new ? stats_->oversize_segments.increase(1) : stats_->oversize_segments.decrease(1);
  }
  ++(is_new ? stats_->num_device_alloc : stats_->num_device_free);
  is_new ? ++pool.owner->segments : --pool.owner->segments;
}

void DeviceSegments::record(TraceEntry::Action action, const Block& segment, const Context& context) {
  history_->record(action, segment.address, segment.size, segment.pool->stream, segment.pool->owner->id, context);
}

} // namespace c10::openreg
