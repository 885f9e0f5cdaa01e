#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <atomic>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "../OpenRegException.h"

// What the device allocator did and from where, for torch.openreg.memory._snapshot().
//
// Rule: gather() is called before the allocator's lock is taken and record() under it. A stack trace needs Python's GIL,
// and a thread that holds the GIL may be waiting for the lock.
namespace c10::openreg {

using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;

struct HistoryOptions {
  CreateContextFn gather = nullptr; // makes a stack trace
  RecordContext when = RecordContext::NEVER;
  size_t max_entries = 1;
  std::vector<TraceEntry::Action> skipped;
};

class MemoryHistory {
 public:
  bool enabled() const {
    return enabled_.load(std::memory_order_relaxed);
  }

  // The calling thread's stack, if it is wanted for events of this kind; null otherwise.
  std::shared_ptr<GatheredContext> gather(RecordContext kind) const {
    return C10_LIKELY(when_.load(std::memory_order_acquire) < kind) ? nullptr
                                                                    : gather_.load(std::memory_order_relaxed)();
  }

  // ---- under the allocator's lock

  void start(HistoryOptions options, size_t devices);
  void stop();
  void clear();

  // `address` is a device address (for OOM, the free bytes). Forgets the oldest entry of the device if there are too
  // many.
  void record(
      TraceEntry::Action action,
      DeviceIndex device,
      const void* address,
      size_t size,
      StreamId stream,
      MempoolId_t pool,
      const std::shared_ptr<GatheredContext>& context) {
    if (C10_UNLIKELY(enabled())) {
      append(action, device, address, size, stream, pool, context);
    }
  }

  // By device, oldest first, with times in microseconds of Unix time.
  std::vector<std::vector<TraceEntry>> entries();

 private:
  std::atomic<bool> enabled_{false};
  std::atomic<RecordContext> when_{RecordContext::NEVER};
  std::atomic<CreateContextFn> gather_{nullptr};
  size_t max_entries_ = 1;
  std::vector<TraceEntry::Action> skipped_;
  std::vector<std::deque<TraceEntry>> entries_; // by device
  std::optional<ApproximateClockToUnixTimeConverter> clock_;

  void append(
      TraceEntry::Action action,
      DeviceIndex device,
      const void* address,
      size_t size,
      StreamId stream,
      MempoolId_t pool,
      const std::shared_ptr<GatheredContext>& context);
};

// A string of the calling thread's that its entries carry from now on: torch.openreg.memory._set_memory_metadata().
OPENREG_API void set_memory_metadata(std::string metadata);
OPENREG_API const std::string& memory_metadata();

} // namespace c10::openreg
