#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "openreg.h"
#include "stream.h"

// What scheduler.cpp, queue.cpp and engine.cpp share. Everybody else includes scheduler.h.

namespace openreg {

using StreamPtr = std::shared_ptr<Stream>;

// One thread, and the streams whose next item it is to run.
//
// To wake a thread costs the one that launches several times what a launch costs otherwise. So a thread that has had work
// naps for a while before it sleeps, and looks for more itself; it is woken out of a nap only when somebody waits.
struct EngineState {
  std::vector<StreamPtr> ready;
  std::condition_variable changed;
  bool started = false;
  enum class Thread { awake, naps, sleeps } thread = Thread::awake;
  bool running = false;
};

struct IdleCallback {
  orHostFn_t fn = nullptr;
  void* data = nullptr;
  std::chrono::microseconds delay{0};
};

// The first failure of a stream since the last one that was reported. It holds the stream: the device still reports it
// when the stream is gone.
struct Failure {
  StreamPtr stream;
  std::exception_ptr exception;
};

struct Scheduler {
  std::mutex mutex;                                     // guards everything here and the queues of all streams
  std::atomic<orExecutionMode> mode{orExecutionInline}; // changes only while nothing is pending
  std::array<EngineState, kEngines> engines;
  std::vector<StreamPtr> active; // the streams that are busy; also keeps destroyed ones until they are done
  std::vector<Failure> failures; // in the order in which they happened
  int waiting = 0;               // threads of the host that wait for a stream
  IdleCallback idleCallback;
  bool stopped = false; // the process exits
  std::condition_variable stoppedRunning;
};

// Never deleted: engines, and destructors of other libraries, use it until the process is gone.
extern Scheduler* scheduler;

// The scheduler's lock, and whom to wake once it is released: a thread that is woken earlier sleeps again at once, to
// wait for the lock.
class Locked {
 public:
  Locked() : lock_(scheduler->mutex) {}

  ~Locked() {
    lock_.unlock();
    wake();
  }

  std::unique_lock<std::mutex>& lock() {
    return lock_;
  }

  void wakeLater(EngineState& engine) {
    using Thread = EngineState::Thread;
    if (engine.thread == Thread::sleeps || (engine.thread == Thread::naps && scheduler->waiting > 0)) {
      engine.thread = Thread::awake; // soon
      engines_[&engine - scheduler->engines.data()] = true;
    }
  }

  void wakeLater(const StreamPtr& stream) {
    streams_.push_back(stream);
  }

 private:
  void wake() {
    for (size_t i = 0; i < kEngines; ++i) {
      if (engines_[i]) {
        scheduler->engines[i].changed.notify_one();
      }
    }
    for (const StreamPtr& stream : streams_) {
      stream->progress.notify_all();
    }
  }

  std::unique_lock<std::mutex> lock_;
  std::array<bool, kEngines> engines_{};
  std::vector<StreamPtr> streams_;
};

// ---- queue.cpp: what can be decided without running anything -------------------------------------------------------

// Puts the stream on the list of active ones, or takes it off.
void setBusy(const StreamPtr& stream, bool busy);

// Counts one more item of the stream as done, and takes the stream and those that waited for it as far as they go.
void completeAndMoveOn(Locked& locked, const StreamPtr& stream);

void push(Locked& locked, const StreamPtr& stream, Item&& item);

// ---- engine.cpp: the threads that run work -------------------------------------------------------------------------

// Runs item number `count` of the stream on this thread, and completes it, also when the thread ends within it.
void run(const StreamPtr& stream, const Work& work, uint64_t count);

// Whether this thread is in a function that a stream, or this one, runs.
bool isRunningHere();
bool isRunningHere(const Stream& stream);

// Starts the engine's thread, if it has none. Throws std::system_error.
void startThread(EngineState& engine);

// The process exits: finishes what runs, abandons what is queued.
void stopEngines();

} // namespace openreg
