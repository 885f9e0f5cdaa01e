#include "runtime/memory/OpenRegMemoryHistory.h"

#include <algorithm>
#include <memory>

namespace c10::openreg {
namespace {

thread_local constinit std::unique_ptr<std::string> metadata; // a pointer, because thread-local storage is scarce

} // namespace

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

} // namespace c10::openreg
