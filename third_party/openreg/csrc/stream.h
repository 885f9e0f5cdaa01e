#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "error.h"
#include "openreg.h"

namespace openreg {

// Streams execute inline: what is queued has run when the queueing call returns, so nothing here waits. The interface
// is the asynchronous one, and a failure of queued work is reported as late as if it were.
struct Stream {
  int device;
  int priority;
};

struct Event {
  int device;
  bool timing;
  std::mutex mutex;               // guards the rest
  std::shared_ptr<Stream> stream; // of the last record; null: never recorded
  int64_t nanoseconds = 0;        // when the device reached the last record
};

inline std::atomic<uintptr_t> lastHandle{0};

// The live objects behind handles. A handle is a number that is never used again, not an address: a stale one, or one
// of the other kind, is told from a live one, and an object lives until the last call that uses it returns.
template <typename T, typename Handle>
class HandleTable {
 public:
  Handle add(std::shared_ptr<T> object) {
    const uintptr_t number = lastHandle += 16; // never NULL
    const std::lock_guard lock(mutex_);
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle>(number);
  }

  std::shared_ptr<T> find(Handle handle) {
    const std::lock_guard lock(mutex_);
    const auto it = objects_.find(reinterpret_cast<uintptr_t>(handle));
    return it == objects_.end() ? nullptr : it->second;
  }

  bool remove(Handle handle) {
    const std::lock_guard lock(mutex_);
    return objects_.erase(reinterpret_cast<uintptr_t>(handle)) != 0;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<uintptr_t, std::shared_ptr<T>> objects_;
};

void createDefaultStreams(int devices);

// The stream behind a handle; NULL is the current device's default stream. Null after a failure that fail() recorded.
std::shared_ptr<Stream> resolveStream(orStream_t stream);

// Waits for `stream` and returns its failure, if one is unreported.
orError_t synchronize(const Stream& stream);

} // namespace openreg
