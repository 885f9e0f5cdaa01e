#include "runtime/memory/OpenRegCachingAllocator.h"

// What torch.openreg.memory._snapshot() shows: the segments of a device, and its history.
namespace c10::openreg {
namespace {

// The segment whose first block is `first`.
SegmentInfo segment_info(const Block* first) {
  SegmentInfo info;
  info.device = first->device;
  info.address = reinterpret_cast<size_t>(first->address);
  info.stream = reinterpret_cast<void*>(first->pool->stream);
  info.is_large = !first->pool->is_small;
  info.owner_private_pool_id = first->pool->owner->id;
  info.context_when_allocated = first->context_when_segment_allocated;
  for (const Block* block = first; block; block = block->next) {
    auto& part = info.blocks.emplace_back();
    part.size = block->size;
    part.requested_size = block->allocated ? block->requested_size : 0;
    part.gc_counter = static_cast<int32_t>(block->pool->age(block));
    part.allocated = block->allocated;
    part.active = block->allocated || block->event_count > 0;
    part.context_when_allocated = block->context_when_allocated;
    info.total_size += block->size;
    info.requested_size += part.requested_size;
    info.allocated_size += part.allocated ? block->size : 0;
    info.active_size += part.active ? block->size : 0;
  }
  return info;
}

} // namespace

std::vector<SegmentInfo> take_snapshot(DeviceState& state, MempoolId_t id) {
  std::vector<SegmentInfo> segments;
  for (const auto& [address, block] : state.blocks) {
    if (!block->previous && (id == MempoolId_t{0, 0} || block->pool->owner->id == id)) {
      segments.push_back(segment_info(block));
    }
  }
  state.history.record(TraceEntry::SNAPSHOT, nullptr, current(state.stats.active_bytes), 0, {0, 0}, nullptr);
  return segments;
}

} // namespace c10::openreg
