#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "hooks.h"
#include "openreg.h"
#include "stream.h"

// What scheduler.cpp, launch.cpp, wait.cpp, failure.cpp, kernel.cpp, queue.cpp, engine.cpp and the files of graphs share.
// activity.cpp, ipc_event.cpp and simulator/faults.cpp use some of it. All other files include scheduler.h.

namespace openreg {

using StreamPtr = std::shared_ptr<Stream>;

// A function that a stream runs, on the stack of the thread that runs it.
struct Frame {
  const Stream* stream;
  const Frame* outer;
  const char* name; // NULL: the function has no name
};

// The state of a thread.
struct HostThread {
  const Frame* function = nullptr; // the innermost function that the thread runs for a stream
  orKernelScope* kernel = nullptr; // the innermost kernel that the thread has begun
  bool tells = false;              // a function of a subscriber runs
  int orderNumber = 0;             // the number that the thread has in an Order (hooks.h); 0: none yet
  uint64_t call = 0;               // the id of the thread's innermost call of which subscribers are told
  orError_t stop = orSuccess;      // what a subscriber passed to orActivityStop(), to stop work that begins
  Stream* waitsFor = nullptr;      // the stream that the thread waits for; guarded by the scheduler's lock
};
inline thread_local constinit HostThread thisThread{};

// One thread that runs work, and the streams whose next item is for this thread.
//
// A launch that wakes a thread costs several times as much as one that does not. So a thread without work first *naps*:
// it waits for a short time, looks for work itself, and repeats this for a while. Then it sleeps until it is woken. A
// thread that naps is woken only if a thread of the host waits.
struct EngineState {
  std::vector<StreamPtr> ready;
  std::condition_variable changed;
  bool started = false;
  enum class Thread { awake, naps, sleeps } thread = Thread::awake;
  bool running = false;
  HostThread* self = nullptr; // null unless `started`
};

struct IdleCallback {
  orHostFn_t fn = nullptr;
  void* data = nullptr;
  std::chrono::microseconds delay{0};
};

// The first failure of a stream since the last report. It keeps the stream alive, because the device still reports the
// failure after the stream was destroyed.
struct Failure {
  StreamPtr stream;
  std::exception_ptr exception;
};

struct Scheduler {
  std::mutex mutex;                                     // guards everything here and the queues of all streams
  std::atomic<uint64_t> seed{0};                        // of orExecutionChaos
  std::atomic<orExecutionMode> mode{orExecutionInline}; // changes only while nothing is pending, or at exit
  std::array<EngineState, kEngines> engines;
  std::vector<StreamPtr> active; // the busy streams; keeps destroyed ones alive until they are done
  std::vector<StreamPtr> held;   // with Hold::held
  std::vector<StreamPtr> begun;  // with Hold::begun or Hold::arrived, in the order of their begins
  int underWay = 0;              // how many streams have Hold::underWay
  uint64_t numbers = 0;          // the last Work::number
  uint64_t ended = 0;            // how many items that were held are done
  uint64_t forced = 0;           // how many of them began because of the time, and not by the schedule
  std::vector<HeldItem> choices; // for choose(): the memory is used again
  std::vector<Failure> failures; // in the order of time
  int waiting = 0;               // how many threads of the host wait for a stream
  std::vector<StreamPtr> asked;  // the streams that threads in advance() ask for
  IdleCallback idleCallback;
  bool stopped = false; // the process exits
  int forking = 0;      // how many threads of the host call fork()
  std::condition_variable stoppedRunning;
};

// Never deleted: engines and destructors of other libraries use it until the process has ended.
extern Scheduler* scheduler;

// Holds the scheduler's lock, and wakes threads when the lock is released. If a thread were woken earlier, it would
// sleep again at once, to wait for the lock.
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
      engine.thread = Thread::awake; // as soon as the lock is released
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

// Records that the calling thread may not wait, because it is in a function that a stream runs. Returns the code.
orError_t notPermitted();

// Waits until the stream has completed `count` items since it was created. Does not wait if a kernel of this thread has
// the turn of the stream. Returns orErrorNotPermitted if this thread may not wait.
orError_t waitFor(Locked& locked, Stream& stream, uint64_t count);

// Waits for the work that was submitted to the streams of one device; without `device`, of all devices.
orError_t waitForDevice(Locked& locked, std::optional<int> device);

// ---- failure.cpp: failures of launched work -------------------------------------------------------------------------

// Removes the first unreported failure of the stream, or of any stream of the device, and returns it.
std::optional<Failure> takeFailure(const Stream& stream);
std::optional<Failure> takeFailureOfDevice(int device);

// Writes the unreported failures to stderr, without the first `first` ones. To be called when the process exits.
void printFailures(size_t first);

// Records the failure for the calling thread, as fail() does, and returns its code; orSuccess if there is none. To be
// called without the lock: the destructor of an exception may run any code.
orError_t report(std::optional<Failure> failure);

// As report(). But if the interceptor says that the device is lost, records and returns that error instead.
orError_t reportOrLost(std::optional<Failure> failure, int device);

// ---- kernel.cpp: the turn of a stream -------------------------------------------------------------------------------

// Makes the stream busy, if it is not: from now on the scheduler decides who gets the turn. A kernel of a thread of the
// host that has the turn keeps it until the kernel ends.
void claim(const StreamPtr& stream);

// Whether a claimed stream has no pending item and no kernel. If so, the caller must use the stream or give its turn up
// before it releases the lock.
bool isIdle(const Stream& stream);

// Gives the turn of a claimed stream up. The first thread that asks for it gets it.
void giveUp(Locked& locked, const StreamPtr& stream);

// Waits until no kernel of another thread of the host has the stream's turn or waits for it, and claims the stream. If
// this thread may not wait, claims it at once.
void claimBetweenKernels(Locked& locked, const StreamPtr& stream);

// Whether a kernel of this thread has the stream's turn. If so, work that the thread starts there runs at once.
bool hasTurnHere(const Stream& stream);

// To be called before and after a wait, without the lock: they call the functions of orSetWaitCallbacks().
void* beforeWait();
void afterWait(void* token); // CPython may end the thread in this call

// A time limit in place of none: when it is reached, the loop around the wait waits again. The reason for it: with GCC
// 12, condition_variable::wait() needs a symbol that older systems do not have, and wait_for() is compiled into its
// caller.
constexpr std::chrono::hours kLong{24};
// How long the exit of the process waits for work that runs or is held. That work may itself wait for something that the
// exiting process never does.
constexpr std::chrono::seconds kLongestExit{10};

// Sleeps until `done()` is true. `done()` is called with the lock held, each time when `stream.progress` is notified;
// with `poll`, also from time to time. The lock is released meanwhile, and may be released once more after `done()` was
// true.
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

// ---- queue.cpp: what can be decided without running work ------------------------------------------------------------

// Adds the stream to the list of active ones, or removes it.
void setBusy(const StreamPtr& stream, bool busy);

// Notes that the device reaches a record of the event now. `number`: that of the record, see Event::number.
void reach(Event& event, uint64_t number);

// Removes items from the queue of a claimed stream that runs no work now, until an item must run or wait. If no item is
// left, gives the turn up. Does the same for the streams that waited for the removed items.
void moveOn(Locked& locked, const StreamPtr& stream);

// Counts one more item of the stream as done, and calls moveOn() for the stream and for those that waited for the item.
void completeAndMoveOn(Locked& locked, const StreamPtr& stream);

// To be called before something is queued on the stream. `what`: the call, for the order (hooks.h). The lock may be
// released meanwhile.
inline void noteCall(Locked& locked, const StreamPtr& stream, const char* what, const char* name) {
  if (order != nullptr && scheduler->mode == orExecutionChaos) {
    order->call(locked, stream, what, name);
  }
}

// Claims the stream and queues the item.
void push(Locked& locked, const StreamPtr& stream, Item&& item);

// ---- hold.cpp: work that is held until somebody needs it (orExecutionChaos) ------------------------------------------

// The stream's first item is work that may run: gives it to its engine or, in orExecutionChaos, holds it.
void makeReady(Locked& locked, const StreamPtr& stream);

// Somebody waits for the first `count` items of the stream. need() only notes this; require() also lets the device run.
void need(Stream& stream, uint64_t count);
void require(Locked& locked, Stream& stream, uint64_t count);

// Whether somebody waits for deferred work that has begun, and that another thread or process will complete.
bool waitsForOthers();

// Lets one more item run if somebody waits and no item is under way.
void runNext(Locked& locked);

// The stream's item, which was under way, is done.
void endHeld(Locked& locked, Stream& stream);

// The stream's deferred item begins. To be called without the lock.
void beginDeferred(const StreamPtr& stream);

// Another thread has completed the stream's deferred item. Returns false if the device shows this at once.
bool holdCompletion(Locked& locked, Stream& stream);

// Lets the schedule's next item run, although nobody waits or another item is under way. Returns the item's stream;
// null: no item can run.
const Stream* forceNext(Locked& locked);

// For a query of the stream. Every second call lets one item run that the stream waits for, and waits until the item is
// done, but not for ever.
void advance(Locked& locked, const StreamPtr& stream);

// To be called when the process exits: runs what is held, but not for ever.
void runHeld(Locked& locked);

// ---- launch.cpp: how work comes to a stream -------------------------------------------------------------------------

// Claims the stream for a launch: waits for room in its queue, and for kernels of other threads. With `noWait`, returns
// false instead of waiting.
bool claimForLaunch(Locked& locked, const StreamPtr& stream, bool noWait);

// Starts the thread that runs such work. After an error the turn of the stream, which was claimed, is given up.
orError_t startThreadFor(const Work& work, Locked& locked, const StreamPtr& stream);

// To be called for work that is about to be queued, without the lock.
void prepare(Work& work);

// ---- engine.cpp: the threads that run work --------------------------------------------------------------------------

// Runs item number `count` of the stream on this thread, and completes it, even if the thread ends within the work.
// Deferred work is only started: complete() completes it.
void run(const StreamPtr& stream, const Work& work, uint64_t count);

// Runs `work` on this thread, whose kernel has the stream's turn.
void runWithin(const StreamPtr& stream, const Work& work);

// Whether this thread is in a function that any stream runs, or that this stream runs.
bool isRunningHere();
bool isRunningHere(const Stream& stream);

// Starts a thread that handles no signals of the host. Throws std::system_error.
void startDeviceThread(std::function<void()> fn);

// Starts the engine's thread, unless it is started. Throws std::system_error.
void startThread(EngineState& engine);

// To be called when the process exits: waits for a running kernel and copy, but not for ever, and abandons queued work.
void stopEngines();

// To be called before fork(), and after it in the parent. pauseEngines() waits for a running kernel and copy, but not
// for ever; until resumeEngines(), the engines begin no work. Otherwise a child could inherit a lock that a kernel
// holds, such as that of a static variable which the first kernel of a process initialises.
void pauseEngines();
void resumeEngines();

} // namespace openreg
