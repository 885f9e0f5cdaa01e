#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "runtime/OpenRegException.h"

// The history of the allocator of one device: what the allocator did, and which lines of the program caused it.
// torch.openreg.memory._snapshot() shows the history.
//
// Rule: gather() is called before the allocator's lock is taken, and record() while it is held. A stack trace needs
// Python's GIL, and a thread that holds the GIL may be waiting for the lock.
namespace c10::openreg {

using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

struct HistoryOptions {
  CreateContextFn gather = nullptr; // makes a stack trace
  RecordContext when = RecordContext::NEVER;
  size_t max_entries = 1; // of one device
  std::vector<TraceEntry::Action> skipped;
};

class MemoryHistory {
 public:
  explicit MemoryHistory(DeviceIndex device) : device_(device) {}

  bool enabled() const {
    return enabled_.load(std::memory_order_relaxed);
  }

  // The stack of the calling thread, if stacks are recorded for events of this kind; null otherwise.
  std::shared_ptr<GatheredContext> gather(RecordContext kind) const {
    return C10_LIKELY(when_.load(std::memory_order_acquire) < kind) ? nullptr
                                                                    : gather_.load(std::memory_order_relaxed)();
  }

  // ---- The caller holds the allocator's lock.

  void start(HistoryOptions options);
  void stop();
  void clear() {
    entries_.clear();
  }

  // Adds an entry if the history is recorded and does not skip `action`. `address` is a device address; in an OOM entry
  // it is the number of free bytes, in a SNAPSHOT entry null. Forgets the oldest entries if there are more than
  // `max_entries`.
  void record(
      TraceEntry::Action action,
      const void* address,
      size_t size,
      StreamId stream,
      MempoolId_t pool,
      const std::shared_ptr<GatheredContext>& context) {
    if (C10_UNLIKELY(enabled())) {
      append(action, address, size, stream, pool, context);
    }
  }

  // The recorded entries, oldest first. Their times are microseconds of Unix time, computed with `to_nanoseconds`.
  std::vector<TraceEntry> entries(const std::function<time_t(approx_time_t)>& to_nanoseconds) const;

 private:
  const DeviceIndex device_;
  std::atomic<bool> enabled_{false};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<CreateContextFn> gather_{nullptr};
  size_t max_entries_ = 1;
  std::vector<TraceEntry::Action> skipped_;
  std::deque<TraceEntry> entries_;

  void append(
      TraceEntry::Action action,
      const void* address,
      size_t size,
      StreamId stream,
      MempoolId_t pool,
      const std::shared_ptr<GatheredContext>& context);
};

// What the allocator holds, and its history if that was asked for: torch.openreg.memory._snapshot().
struct MemorySnapshot {
  std::vector<SegmentInfo> segments;                  // of all devices, by address
  std::vector<std::vector<TraceEntry>> device_traces; // by device, oldest entry first
};

// Called before an allocation fails, with the device, the bytes asked for, the bytes that the process may have, and the
// device's free bytes.
using OutOfMemoryObserver = std::function<void(int64_t device, size_t size, size_t total, size_t free)>;

// A string that the entries of the calling thread carry from now on: torch.openreg.memory._set_memory_metadata().
OPENREG_API void set_memory_metadata(std::string metadata);
OPENREG_API const std::string& memory_metadata();

} // namespace c10::openreg
