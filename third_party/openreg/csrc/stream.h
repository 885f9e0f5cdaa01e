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

// Streams, events, and the items of a stream's queue.
namespace openreg {

struct Stream;
struct Event;
struct CapturePoint;
class SharedEvent;

// The threads that run queued work.
enum class Engine { compute, copy, hostFunction };
constexpr size_t kEngines = 3;

struct Work {
  Engine engine;
  orHostFn_t fn;
  void* data;
  unsigned int kind = 0;             // an orActivityKind; 0: a host function, which is no activity
  orKernel what{};                   // the description for subscribers
  uint64_t call = 0;                 // the id of the call that started it; 0 if no subscriber is told of calls
  uint64_t scheduled = 0;            // in orExecutionChaos: the number for Schedule::done()
  uint64_t number = 0;               // in orExecutionChaos: the place in the order of the calls
  orDeferredFn_t deferred = nullptr; // instead of `fn`
  Stream* launchedOn = nullptr;      // of a graph's node: the stream of orGraphLaunch, which gets the failure
};

struct Record {
  std::shared_ptr<Event> event;
  uint64_t number = 0; // see Event::number
};

// A point of a stream. It is reached when the stream has completed `count` items.
struct Mark {
  std::shared_ptr<Stream> stream; // null: the mark is reached
  uint64_t count = 0;

  bool reached() const;
};

// An item of a queue. Work runs on a thread, a Record takes no time, and a Mark makes the stream wait.
using Item = std::variant<Work, Record, Mark>;

struct HostThread;

// Who has the turn of a stream (see Kernels in openreg.h). `taken`: a kernel on a thread of the host, which took the
// turn without the scheduler's lock and gives it back without the lock. `scheduled`: the stream is busy or has
// failed, and the scheduler decides under its lock who gets the turn.
enum class Turn { free, taken, scheduled };

// What becomes of a stream's first item in orExecutionChaos. `held`: it may run, and is not chosen yet. `underWay`: it is
// chosen. `begun`: deferred work, which another thread completes. `arrived`: that thread has done so, which the device
// does not show yet.
enum class Hold { none, held, underWay, begun, arrived };

struct Stream {
  Stream(int device, int priority) : device(device), priority(priority) {}

  const int device;
  const int priority;
  orStream_t handle = nullptr;

  std::atomic<Turn> turn{Turn::free};
  std::atomic<HostThread*> holder{nullptr}; // the thread whose kernel has the turn, or which runs an item

  std::atomic<bool> capturing{false};    // then the turn is never `free`; see graph.h
  std::shared_ptr<CapturePoint> capture; // guarded by graphLock

  // The scheduler's lock guards the other members.
  std::deque<Item> queue;  // the items that have not begun
  uint64_t submitted = 0;  // how many items were ever queued, or run in the launching call
  uint64_t completed = 0;  // how many of them are done: they complete in order
  bool busy = false;       // if true, the turn is `scheduled`; if false, the queue is empty
  bool hostKernel = false; // while busy: a kernel on a thread of the host has the turn
  int kernelsWaiting = 0;  // how many threads of the host wait with a kernel for the turn
  int turnWaiters = 0;     // how many threads sleep: those of kernelsWaiting, and launches that wait for kernels
  size_t activeIndex = 0;  // while busy: the index in Scheduler::active
  Hold hold = Hold::none;  // of the first item that is not completed
  uint64_t needed = 0;     // somebody waits for the first `needed` items; only in orExecutionChaos
  uint64_t heldAt = 0;     // Scheduler::ended when it became `held`
  bool isPolled = false;   // the last query has advanced nothing, so the next one does; only in orExecutionChaos
  int orderNumber = 0;     // the number that the stream has in an Order; 0: none yet
  uint64_t rank = 0;       // of the stream in a random schedule
  uint64_t rankedIn = 0;   // the part of the schedule in which the rank was drawn
  std::vector<std::pair<uint64_t, std::shared_ptr<Stream>>>
      blocked;                                                // the count of a mark, and a stream that waits for it
  std::condition_variable progress;                           // wakes the host threads that wait for this stream
  uint64_t progressAt = std::numeric_limits<uint64_t>::max(); // the smallest count that one of them waits for
};

inline bool Mark::reached() const {
  return !stream || stream->completed >= count;
}

struct Event {
  Event(int device, bool timing, std::shared_ptr<SharedEvent> shared = nullptr)
      : device(device), timing(timing), shared(std::move(shared)) {}

  const int device;
  const bool timing;
  const std::shared_ptr<SharedEvent> shared; // null, unless other processes can open the event

  std::atomic<bool> wasCaptured{false};   // in any capture so far
  std::shared_ptr<CapturePoint> captured; // null unless the last record was captured; guarded by graphLock

  // The scheduler's lock guards the other members.
  Mark mark;               // the last record; without a stream: never recorded, or (if shared) reached
  int64_t nanoseconds = 0; // the time when the device reached the mark
  uint64_t number = 0;     // of a shared event: the number of the record that the mark stands for
};

inline std::atomic<uintptr_t> lastHandle{0};

// The objects behind handles. A handle is a number, not an address, and no number is used twice. So a handle that was
// destroyed, or that belongs to another kind of object, is recognised. An object lives until the last call that uses it
// has returned.
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

// Streams that live as long as the process. A bit distinguishes their handles from all others, and they are found
// without a lock.
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

// To be called in a forked child. From then on no persistent stream is found, so every call comes to start(), which
// returns the error.
void forgetStreams();

bool isDefaultStream(const Stream& stream);

// The stream behind a handle; NULL is the current device's default stream. Returns null after a failure, which fail()
// has recorded.
std::shared_ptr<Stream> resolveStream(orStream_t stream);

} // namespace openreg
