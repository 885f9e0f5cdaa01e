#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "openreg.h"
#include "stream.h"

// What scheduler.cpp, launch.cpp, wait.cpp, failure.cpp, kernel.cpp, queue.cpp and engine.cpp share. All other files include
// scheduler.h.

namespace openreg {

using StreamPtr = std::shared_ptr<Stream>;

// A function of a stream that a thread is in.
struct Frame {
  const Stream* stream;
  const Frame* outer;
  const char* name; // NULL: it has none
};

// What a thread is in: the innermost function that a stream runs, and the innermost kernel that has a turn.
struct HostThread {
  const Frame* function = nullptr;
  orKernelScope* kernel = nullptr;
  bool tells = false;         // a subscriber's function runs
  uint64_t call = 0;          // the innermost call that subscribers are told of
  orError_t stop = orSuccess; // what a subscriber wants the work that begins to fail with
  Stream* waitsFor = nullptr; // guarded by the scheduler's lock
};
inline thread_local constinit HostThread thisThread{};

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
  HostThread* self = nullptr; // while started
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
    if (lock_.owns_lock()) {
      release();
    }
  }

  void release() {
    lock_.unlock();
    wake();
  }

  void acquire() {
    lock_.lock();
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
    engines_ = {};
    for (const StreamPtr& stream : streams_) {
      stream->progress.notify_all();
    }
    streams_.clear();
  }

  std::unique_lock<std::mutex> lock_;
  std::array<bool, kEngines> engines_{};
  std::vector<StreamPtr> streams_;
};

// ---- wait.cpp: threads of the host that wait ------------------------------------------------------------------------

// Records that the calling thread may not wait, because a stream runs the function that it is in. Returns the code.
orError_t notPermitted();

// Waits until the stream has completed `count` items. orErrorNotPermitted where the thread may not wait.
orError_t waitFor(Locked& locked, Stream& stream, uint64_t count);

// Waits for what has been submitted to the streams of one device; without `device`, to the streams of all devices.
orError_t waitForDevice(Locked& locked, std::optional<int> device);

// ---- failure.cpp: failures of queued work ---------------------------------------------------------------------------

// Removes the first unreported failure of the stream, or of any stream of the device, and returns it.
std::optional<Failure> takeFailure(const Stream& stream);
std::optional<Failure> takeFailureOfDevice(int device);

// Records the failure for the calling thread, as fail() does; orSuccess if there is none. To be called without the lock: the
// destructor of an exception may run any code.
orError_t report(std::optional<Failure> failure);

// The same. If the device is lost (openreg_faults.h), the error is that instead of `failure`.
orError_t reportOrLost(std::optional<Failure> failure, int device);

// ---- kernel.cpp: who may run on a stream -----------------------------------------------------------------------------

// Makes the turn the scheduler's, and the stream busy.
void claim(const StreamPtr& stream);

// Whether a claimed stream has nothing to run, and nobody who runs: the caller goes on with it, before it lets go of the
// lock.
bool isIdle(const Stream& stream);

// Gives a claimed stream's turn back, to whoever comes first.
void giveUp(Locked& locked, const StreamPtr& stream);

// Claims the stream when no kernel of another thread of the host has its turn or waits for it. Claims it all the same if
// this thread may not wait for that.
void claimBetweenKernels(Locked& locked, const StreamPtr& stream);

// Whether a kernel of this thread has the stream's turn, so that what the thread starts there runs at once.
bool hasTurnHere(const Stream& stream);

// orSetWaitCallbacks(): around a wait, without the lock.
void* beforeWait();
void afterWait(void* token); // may end the thread

// As good as no limit. GCC 12 makes of condition_variable::wait() a symbol that systems older than it do not have, and
// compiles wait_for() into its caller.
constexpr std::chrono::hours kLong{24};

// Sleeps until `done()`, which is asked under the lock when somebody notifies `stream.progress`. `poll`: also from time
// to time. The lock is given up meanwhile, also after `done()` was true for the last time.
template <typename Done>
void sleepUntil(Locked& locked, Stream& stream, bool poll, const Done& done) {
  constexpr std::chrono::milliseconds kPoll{10};
  locked.release();
  void* const token = beforeWait();
  locked.acquire();
  Stream* const outer = std::exchange(thisThread.waitsFor, &stream);
  while (!done()) {
    stream.progress.wait_for(locked.lock(), poll ? kPoll : kLong);
  }
  thisThread.waitsFor = outer;
  if (token != nullptr) {
    locked.release();
    afterWait(token);
    locked.acquire();
  }
}

// ---- queue.cpp: what can be decided without running anything -------------------------------------------------------

// Puts the stream on the list of active ones, or takes it off.
void setBusy(const StreamPtr& stream, bool busy);

// The device reaches the event's record now.
void setTime(Event& event);

// Takes a claimed stream, none of whose work runs, as far as it goes, and those that waited for it.
void moveOn(Locked& locked, const StreamPtr& stream);

// Counts one more item of the stream as done, and takes the stream and those that waited for it as far as they go.
void completeAndMoveOn(Locked& locked, const StreamPtr& stream);

void push(Locked& locked, const StreamPtr& stream, Item&& item);

// ---- engine.cpp: the threads that run work -------------------------------------------------------------------------

// Runs item number `count` of the stream on this thread, and completes it, also when the thread ends within it.
void run(const StreamPtr& stream, const Work& work, uint64_t count);

// Runs `work` on this thread within the turn that it has.
void runWithin(const StreamPtr& stream, const Work& work);

// Whether this thread is in a function that a stream, or this one, runs.
bool isRunningHere();
bool isRunningHere(const Stream& stream);

// Starts the engine's thread, if it has none. Throws std::system_error.
void startThread(EngineState& engine);

// The process exits: finishes what runs, abandons what is queued.
void stopEngines();

} // namespace openreg
