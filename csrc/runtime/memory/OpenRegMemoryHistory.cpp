#include "runtime/memory/OpenRegMemoryHistory.h"

#include <algorithm>
#include <memory>

#include "runtime/memory/OpenRegCachingAllocator.h"

namespace c10::openreg {
namespace {

thread_local constinit std::unique_ptr<std::string> metadata; // a pointer, because thread-local storage is scarce

} // namespace

// ---- history

void set_memory_metadata(std::string value) {
  metadata = std::make_unique<std::string>(std::move(value));
}

const std::string& memory_metadata() {
  static const auto* const none = new std::string; // leaked: threads may outlive static destructors
  return metadata ? *metadata : *none;
}

void MemoryHistory::start(HistoryOptions options) {
  max_entries_ = std::max<size_t>(options.max_entries, 1);
  skipped_ = std::move(options.skipped);
  gather_.store(options.gather, std::memory_order_relaxed);
  when_.store(options.when, std::memory_order_release);
  enabled_.store(true, std::memory_order_relaxed);
}

// Leaves gather_ as it is: gather() on another thread may have read when_ already, and is then about to call gather_.
void MemoryHistory::stop() {
  when_.store(RecordContext::NEVER, std::memory_order_relaxed);
  enabled_.store(false, std::memory_order_relaxed);
}

void MemoryHistory::append(
    TraceEntry::Action action,
    const void* address,
    size_t size,
    StreamId stream,
    MempoolId_t pool,
    const std::shared_ptr<GatheredContext>& context) {
  if (std::find(skipped_.begin(), skipped_.end(), action) != skipped_.end()) {
    return;
  }
  entries_.emplace_back(
      action,
      device_,
      reinterpret_cast<size_t>(address),
      size,
      reinterpret_cast<void*>(stream),
      pool,
      getApproximateTime(),
      // With the context "state", only the memory in use has stacks, as in CUDACachingAllocator.cpp, record_trace().
      when_.load(std::memory_order_relaxed) >= RecordContext::ALLOC ? context : nullptr,
      /*compile_context=*/"",
      memory_metadata());
  while (entries_.size() > max_entries_) {
    entries_.pop_front();
  }
}

std::vector<TraceEntry> MemoryHistory::entries(const std::function<time_t(approx_time_t)>& to_nanoseconds) const {
  std::vector<TraceEntry> result(entries_.begin(), entries_.end());
  for (TraceEntry& entry : result) {
    entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
  }
  return result;
}

// ---- snapshots

// The segment whose first block is `first`.
static SegmentInfo segment_info(const Block* first) {
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
