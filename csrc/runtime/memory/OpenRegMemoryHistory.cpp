#include "OpenRegMemoryHistory.h"

#include <algorithm>

namespace c10::openreg {
namespace {

thread_local std::string metadata;

} // namespace

void set_memory_metadata(std::string value) {
  metadata = std::move(value);
}

const std::string& memory_metadata() {
  return metadata;
}

void MemoryHistory::start(HistoryOptions options, size_t devices) {
  if (!clock_) {
    clock_.emplace();
  }
  max_entries_ = std::max<size_t>(options.max_entries, 1);
  skipped_ = std::move(options.skipped);
  entries_.resize(devices);
  gather_.store(options.gather, std::memory_order_relaxed);
  when_.store(options.when, std::memory_order_release);
  enabled_.store(true, std::memory_order_relaxed);
}

// Leaves gather_: a thread may have just found that it is wanted.
void MemoryHistory::stop() {
  when_.store(RecordContext::NEVER, std::memory_order_relaxed);
  enabled_.store(false, std::memory_order_relaxed);
}

void MemoryHistory::clear() {
  for (auto& entries : entries_) {
    entries.clear();
  }
}

void MemoryHistory::append(
    TraceEntry::Action action,
    DeviceIndex device,
    const void* address,
    size_t size,
    StreamId stream,
    MempoolId_t pool,
    const std::shared_ptr<GatheredContext>& context) {
  if (std::find(skipped_.begin(), skipped_.end(), action) != skipped_.end()) {
    return;
  }
  auto& entries = entries_[device];
  entries.emplace_back(
      action,
      device,
      reinterpret_cast<size_t>(address),
      size,
      reinterpret_cast<void*>(stream),
      pool,
      getApproximateTime(),
      context,
      /*compile_context=*/"",
      metadata);
  while (entries.size() > max_entries_) {
    entries.pop_front();
  }
}

std::vector<std::vector<TraceEntry>> MemoryHistory::entries() {
  std::vector<std::vector<TraceEntry>> result;
  if (!clock_) {
    return result;
  }
  const auto to_nanoseconds = clock_->makeConverter();
  for (const auto& entries : entries_) {
    auto& copy = result.emplace_back(entries.begin(), entries.end());
    for (TraceEntry& entry : copy) {
      entry.time_.t_ = to_nanoseconds(entry.time_.approx_t_) / 1000;
    }
  }
  return result;
}

} // namespace c10::openreg
