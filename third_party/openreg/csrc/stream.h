#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "error.h"
#include "openreg.h"

namespace openreg {

struct Stream;
struct Event;

// The threads that run queued work.
enum class Engine { compute, copy, hostFunction };
constexpr size_t kEngines = 3;

struct Work {
  Engine engine;
  orHostFn_t fn;
  void* data;
  unsigned int kind = 0;             // orActivityKind; 0: a host function
  orKernel what{};                   // for those who are told of it
  uint64_t call = 0;                 // which one started it, if anybody is told of calls
  uint64_t hostMemory = 0;           // in orExecutionChaos: names the host memory that it uses, see chaos.h
  orDeferredFn_t deferred = nullptr; // instead of `fn`
};

struct Record {
  std::shared_ptr<Event> event;
};

// A point of a stream: reached when the stream has completed that many items.
struct Mark {
  std::shared_ptr<Stream> stream; // null: reached
  uint64_t count = 0;

  bool reached() const;
};

// What a queue holds. Only Work takes time; a Mark is waited for.
using Item = std::variant<Work, Record, Mark>;

struct HostThread;

// Who runs on a stream. `taken`: a kernel on a thread of the host, which took the turn without the scheduler's lock and
// will give it back so. `scheduled`: the scheduler decides, under its lock; the stream is busy.
enum class Turn { free, taken, scheduled };

struct Stream {
  Stream(int device, int priority) : device(device), priority(priority) {}

  const int device;
  const int priority;
  orStream_t handle = nullptr;

  std::atomic<Turn> turn{Turn::free};
  std::atomic<HostThread*> holder{nullptr}; // the thread whose kernel has the turn, or that runs an item

  // The rest is the scheduler's, guarded by its lock.
  std::deque<Item> queue;  // what has not begun
  uint64_t submitted = 0;  // items ever queued
  uint64_t completed = 0;  // of these, the ones done: they complete in order
  bool busy = false;       // the turn is `scheduled`; if not, the queue is empty
  bool hostKernel = false; // while busy: a kernel on a thread of the host has the turn
  int kernelsWaiting = 0;  // threads of the host whose kernels want the turn
  int turnWaiters = 0;     // these, and threads whose launches wait for kernels: all of them sleep
  size_t activeIndex = 0;  // while busy: its place in the scheduler's list
  std::vector<std::pair<uint64_t, std::shared_ptr<Stream>>> blocked; // streams that wait for a mark here, and which
  std::condition_variable progress;                                  // host threads that wait ...
  uint64_t progressAt = std::numeric_limits<uint64_t>::max();        // ... and the nearest mark one of them waits for
};

inline bool Mark::reached() const {
  return !stream || stream->completed >= count;
}

struct Event {
  Event(int device, bool timing) : device(device), timing(timing) {}

  const int device;
  const bool timing;

  // The rest is the scheduler's, guarded by its lock.
  Mark mark;               // of the last record; no stream: never recorded
  int64_t nanoseconds = 0; // when the device reached it
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

// Streams that live as long as the process. Their handles are told from the others' by a bit, and found without a lock.
constexpr uintptr_t kPersistentBit = 8;
constexpr size_t kMaxPersistent = 16384;
inline std::array<std::atomic<Stream*>, kMaxPersistent> persistentStreams{};

inline Stream* findPersistent(orStream_t handle) {
  const auto number = reinterpret_cast<uintptr_t>(handle);
  const size_t index = number / (2 * kPersistentBit);
  return (number & kPersistentBit) != 0 && index < kMaxPersistent
             ? persistentStreams[index].load(std::memory_order_acquire)
             : nullptr;
}

void createDefaultStreams(int devices);

// In a forked child: no handle of a persistent stream is found any more, so that every call asks start(), which refuses.
void forgetStreams();

// The stream behind a handle; NULL is the current device's default stream. Null after a failure that fail() recorded.
std::shared_ptr<Stream> resolveStream(orStream_t stream);

} // namespace openreg
