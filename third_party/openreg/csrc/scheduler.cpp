#include "scheduler.h"

#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include "chaos.h"
#include "device.h"
#include "runtime.h"

namespace openreg {
namespace {

using StreamPtr = std::shared_ptr<Stream>;

// How long the exit of the process waits for a kernel or a copy that runs. It is not without limit because that work
// could itself be waiting for something that the exiting process never does.
constexpr std::chrono::seconds kLongestExit{10};

constexpr std::array<const char*, kEngines> kThreadNames = {"openreg compute", "openreg copy", "openreg host"};

// One thread, and the streams whose next item it is to run.
struct EngineState {
  std::vector<StreamPtr> ready;
  std::condition_variable changed;
  bool started = false;
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
  IdleCallback idleCallback;
  bool stopped = false; // the process exits
  std::condition_variable stoppedRunning;
};

// Never deleted: engines, and destructors of other libraries, use it until the process is gone.
Scheduler* scheduler = nullptr;

// The functions of streams that this thread is in, the innermost first.
struct Frame {
  const Stream* stream;
  const Frame* outer;
};
thread_local constinit const Frame* innermost = nullptr;

bool isRunningHere(const Stream& stream) {
  for (const Frame* frame = innermost; frame != nullptr; frame = frame->outer) {
    if (frame->stream == &stream) {
      return true;
    }
  }
  return false;
}

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
    engines_[&engine - scheduler->engines.data()] = true;
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

// ---- Queues --------------------------------------------------------------------------------------------------------

void setBusy(const StreamPtr& stream, bool busy) {
  if (busy == stream->busy) {
    return;
  }
  stream->busy = busy;
  auto& active = scheduler->active;
  if (busy) {
    stream->activeIndex = active.size();
    active.push_back(stream);
  } else {
    active.back()->activeIndex = stream->activeIndex;
    std::swap(active[stream->activeIndex], active.back());
    active.pop_back();
  }
}

// Counts one more item as done. Adds the streams that waited for it to `released`.
void complete(Locked& locked, const StreamPtr& stream, std::vector<StreamPtr>& released) {
  const uint64_t done = ++stream->completed;
  if (done >= stream->progressAt) {
    stream->progressAt = std::numeric_limits<uint64_t>::max();
    locked.wakeLater(stream);
  }
  std::erase_if(stream->blocked, [&](auto& waiting) {
    if (waiting.first > done) {
      return false;
    }
    released.push_back(std::move(waiting.second));
    return true;
  });
}

// Takes a stream, none of whose work runs, as far as it goes without running any.
void moveOn(Locked& locked, const StreamPtr& stream, std::vector<StreamPtr>& released) {
  while (!stream->queue.empty()) {
    Item& item = stream->queue.front();
    if (const Work* work = std::get_if<Work>(&item)) {
      EngineState& engine = scheduler->engines[static_cast<size_t>(work->engine)];
      setBusy(stream, true);
      engine.ready.push_back(stream);
      locked.wakeLater(engine);
      return;
    }
    if (const Mark* mark = std::get_if<Mark>(&item)) {
      if (!mark->reached()) {
        setBusy(stream, true);
        mark->stream->blocked.emplace_back(mark->count, stream);
        return;
      }
    } else {
      Event& event = *std::get<Record>(item).event;
      const bool isLast = event.mark.stream == stream && event.mark.count == stream->completed + 1;
      if (isLast && event.timing) {
        event.nanoseconds = std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
      }
    }
    stream->queue.pop_front();
    complete(locked, stream, released);
  }
  setBusy(stream, false);
}

void moveOn(Locked& locked, const StreamPtr& first) {
  std::vector<StreamPtr> released;
  moveOn(locked, first, released);
  while (!released.empty()) { // a loop, because a chain of streams that wait for each other can be long
    const StreamPtr next = std::move(released.back());
    released.pop_back();
    moveOn(locked, next, released);
  }
}

void push(Locked& locked, const StreamPtr& stream, Item&& item) {
  stream->queue.push_back(std::move(item));
  ++stream->submitted;
  if (!stream->busy) {
    moveOn(locked, stream);
  }
}

// ---- Running -------------------------------------------------------------------------------------------------------

// Runs item number `count` of the stream on this thread, and completes it, also when the thread ends within it.
void run(const StreamPtr& stream, const Work& work, uint64_t count) {
  struct Running {
    const StreamPtr& stream;
    const uint64_t count;
    const Frame frame{stream.get(), innermost};
    const int outerDevice = exchangeDevice(stream->device);
    std::exception_ptr exception{};

    Running(const StreamPtr& stream, uint64_t count) : stream(stream), count(count) {
      innermost = &frame;
    }

    ~Running() {
      innermost = frame.outer;
      exchangeDevice(outerDevice);
      Locked locked;
      if (stream->completed >= count) {
        return; // abandoned: the process exits
      }
      auto& failures = scheduler->failures;
      if (exception && std::none_of(failures.begin(), failures.end(), [&](auto& f) { return f.stream == stream; })) {
        failures.push_back({stream, std::move(exception)}); // this thread keeps nothing of it
      }
      std::vector<StreamPtr> released;
      complete(locked, stream, released);
      moveOn(locked, stream);
      for (const StreamPtr& next : released) {
        moveOn(locked, next);
      }
    }
  };

  Running running(stream, count);
  if (isChaos()) {
    chaosPause();
  }
  try {
    work.fn(work.data);
  } catch (const abi::__forced_unwind&) {
    throw; // pthread_exit or pthread_cancel: CPython ends threads so at interpreter exit, and it must not be stopped
  } catch (...) {
    running.exception = std::current_exception();
  }
  if (isChaos()) {
    chaosPause();
  }
}

// The most urgent of the streams that are ready, of these the first; in orExecutionChaos any of them.
StreamPtr takeReady(EngineState& engine) {
  auto next = engine.ready.begin();
  if (isChaos()) {
    next += static_cast<std::ptrdiff_t>(chaosChoice(engine.ready.size()));
  } else {
    next = std::min_element(
        engine.ready.begin(), engine.ready.end(), [](auto& a, auto& b) { return a->priority < b->priority; });
  }
  StreamPtr stream = std::move(*next);
  engine.ready.erase(next);
  return stream;
}

// Sleeps until a stream is ready. `hasWorked`: since the idle callback was last called.
void waitForWork(EngineState& engine, std::unique_lock<std::mutex>& lock, bool& hasWorked) {
  const bool computes = &engine == &scheduler->engines[static_cast<size_t>(Engine::compute)];
  const auto canGoOn = [&] { return !engine.ready.empty() && !scheduler->stopped; };
  while (!canGoOn()) {
    const IdleCallback callback = scheduler->idleCallback;
    if (!computes || !hasWorked || callback.fn == nullptr || scheduler->stopped) {
      engine.changed.wait(lock);
    } else if (!engine.changed.wait_for(lock, callback.delay, canGoOn)) {
      hasWorked = false;
      lock.unlock();
      callback.fn(callback.data);
      lock.lock();
    }
  }
}

void startThread(EngineState& engine);

void runEngine(EngineState& engine) {
  // Also when a host function ends its thread, as CPython makes those do that want the interpreter when it is gone.
  struct Thread {
    EngineState& engine;

    ~Thread() {
      const std::lock_guard lock(scheduler->mutex);
      engine.started = engine.running = false;
      scheduler->stoppedRunning.notify_all();
      if (!engine.ready.empty()) {
        try {
          startThread(engine);
        } catch (const std::system_error&) { // the next launch tries again
        }
      }
    }
  } const thread{engine};

  pthread_setname_np(pthread_self(), kThreadNames[&engine - scheduler->engines.data()]);
  bool hasWorked = false;
  for (;;) {
    StreamPtr stream;
    Work work;
    uint64_t count;
    {
      std::unique_lock lock(scheduler->mutex);
      engine.running = false;
      if (scheduler->stopped) {
        scheduler->stoppedRunning.notify_all();
      }
      waitForWork(engine, lock, hasWorked);
      engine.running = true;
      stream = takeReady(engine);
      work = std::get<Work>(stream->queue.front());
      count = stream->completed + 1;
      stream->queue.pop_front();
    }
    hasWorked = true;
    run(stream, work, count);
  }
}

// Throws std::system_error.
void startThread(EngineState& engine) {
  if (engine.started) {
    return;
  }
  // Signals are for the host's own threads, but for those that a thread causes itself.
  sigset_t blocked;
  sigset_t previous;
  sigfillset(&blocked);
  for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT}) {
    sigdelset(&blocked, own);
  }
  pthread_sigmask(SIG_SETMASK, &blocked, &previous);
  const struct Restore {
    const sigset_t& mask;
    ~Restore() {
      pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    }
  } restore{previous};
  std::thread(runEngine, std::ref(engine)).detach();
  engine.started = true;
}

// ---- Waiting and reporting -----------------------------------------------------------------------------------------

orError_t notPermitted() {
  return fail(
      orErrorNotPermitted,
      "called inside a function that a stream runs, it would have to wait for queued work, which may be waiting for "
      "that function; call it on a thread of the host");
}

// Waits until the stream has completed `count` items.
orError_t waitFor(Locked& locked, Stream& stream, uint64_t count) {
  if (innermost != nullptr) {
    return stream.completed + (isRunningHere(stream) ? 1 : 0) >= count ? orSuccess : notPermitted();
  }
  while (stream.completed < count) {
    stream.progressAt = std::min(stream.progressAt, count);
    stream.progress.wait(locked.lock());
  }
  return orSuccess;
}

// Waits for what has been submitted to the streams of one device, or of all.
orError_t waitForDevice(Locked& locked, std::optional<int> device) {
  std::vector<Mark> marks;
  for (const StreamPtr& stream : scheduler->active) {
    if (!device || stream->device == *device) {
      marks.push_back({stream, stream->submitted});
    }
  }
  for (const Mark& mark : marks) {
    if (orError_t error = waitFor(locked, *mark.stream, mark.count); error != orSuccess) {
      return error;
    }
  }
  return orSuccess;
}

// Takes the first failure whose stream matches.
template <typename Matches>
std::optional<Failure> takeFailure(Matches&& matches) {
  auto& failures = scheduler->failures;
  const auto it = std::find_if(failures.begin(), failures.end(), [&](const Failure& f) { return matches(*f.stream); });
  if (it == failures.end()) {
    return std::nullopt;
  }
  std::optional<Failure> failure(std::move(*it));
  failures.erase(it);
  return failure;
}

std::string reasonOf(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Outside the lock: an exception may run anything when it goes.
orError_t report(std::optional<Failure> failure) {
  if (!failure) {
    return orSuccess;
  }
  const std::string reason = reasonOf(failure->exception);
  setLaunchFailure(std::move(failure->exception));
  return fail(
      orErrorLaunchFailure,
      "a function launched earlier on a stream of device %d failed: %s. The device is usable; what the function should "
      "have written is not",
      failure->stream->device,
      reason.c_str());
}

// ---- Exit ----------------------------------------------------------------------------------------------------------

void stopAtExit() {
  if (isInBadFork()) {
    return;
  }
  Locked locked;
  scheduler->stopped = true;
  scheduler->mode = orExecutionInline;
  if (innermost == nullptr) { // else a function called exit(), and would wait for itself
    const auto runs = [](Engine engine) { return scheduler->engines[static_cast<size_t>(engine)].running; };
    scheduler->stoppedRunning.wait_for(
        locked.lock(), kLongestExit, [&] { return !runs(Engine::compute) && !runs(Engine::copy); });
  }
  static auto* const abandoned = new std::vector<std::deque<Item>>(); // nothing more is to be destroyed now
  while (!scheduler->active.empty()) {
    const StreamPtr stream = scheduler->active.back();
    abandoned->push_back(std::exchange(stream->queue, {}));
    stream->completed = stream->submitted;
    stream->blocked.clear();
    locked.wakeLater(stream);
    setBusy(stream, false);
  }
}

} // namespace

void startScheduler(orExecutionMode mode, uint64_t seed) {
  scheduler = new Scheduler();
  scheduler->mode = mode;
  seedChaos(seed);
  std::atexit(stopAtExit);
}

bool isChaos() {
  return scheduler->mode.load(std::memory_order_relaxed) == orExecutionChaos;
}

bool runNow(const StreamPtr& stream, const Work& work, bool mayRunInline) {
  uint64_t count;
  {
    const Locked locked;
    const orExecutionMode mode = scheduler->mode;
    if (stream->busy || !(mode == orExecutionInline || (mode == orExecutionAsync && mayRunInline))) {
      return false;
    }
    setBusy(stream, true);
    count = ++stream->submitted;
  }
  run(stream, work, count);
  return true;
}

orError_t enqueue(const StreamPtr& stream, Item item) {
  Locked locked;
  if (const Work* work = std::get_if<Work>(&item)) {
    try {
      startThread(scheduler->engines[static_cast<size_t>(work->engine)]);
    } catch (const std::system_error& error) {
      return fail(
          orErrorOperatingSystem,
          "cannot start a thread to run queued work: %s. Free memory, or raise the limit on processes (ulimit -u)",
          error.what());
    }
  }
  push(locked, stream, std::move(item));
  return orSuccess;
}

orError_t launch(const StreamPtr& stream, const Work& work, bool mayRunInline) {
  return runNow(stream, work, mayRunInline) ? orSuccess : enqueue(stream, work);
}

orError_t launchAndWait(const StreamPtr& stream, const Work& work) {
  {
    Locked locked;
    if (orError_t error = waitFor(locked, *stream, stream->submitted); error != orSuccess) {
      return error;
    }
  }
  if (runNow(stream, work, true)) {
    return orSuccess;
  }
  if (innermost != nullptr) {
    return notPermitted();
  }
  if (orError_t error = enqueue(stream, work); error != orSuccess) {
    return error;
  }
  Locked locked;
  return waitFor(locked, *stream, stream->submitted);
}

void record(const std::shared_ptr<Event>& event, const StreamPtr& stream) {
  Locked locked;
  event->mark = {stream, stream->submitted + 1};
  push(locked, stream, Record{event});
}

EventState stateOf(const Event& event) {
  const Locked locked;
  return {event.mark, event.mark.reached(), event.nanoseconds};
}

bool isBusy(const Stream& stream) {
  const Locked locked;
  return stream.busy;
}

orError_t synchronize(const StreamPtr& stream) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitFor(locked, *stream, stream->submitted); error != orSuccess) {
      return error;
    }
    failure = takeFailure([&](const Stream& failed) { return &failed == stream.get(); });
  }
  return report(std::move(failure));
}

orError_t synchronize(const Mark& mark) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitFor(locked, *mark.stream, mark.count); error != orSuccess) {
      return error;
    }
    failure = takeFailure([&](const Stream& failed) { return &failed == mark.stream.get(); });
  }
  return report(std::move(failure));
}

orError_t synchronizeDevice(int device) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitForDevice(locked, device); error != orSuccess) {
      return error;
    }
    failure = takeFailure([&](const Stream& failed) { return failed.device == device; });
  }
  return report(std::move(failure));
}

orError_t waitForAllDevices() {
  Locked locked;
  return waitForDevice(locked, std::nullopt);
}

} // namespace openreg

using namespace openreg;

orError_t orSetExecutionMode(orExecutionMode mode, uint64_t seed) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (mode < orExecutionInline || mode > orExecutionChaos) {
      return fail(orErrorInvalidValue, "mode is %d, which is no orExecutionMode (0 to 2)", mode);
    }
    Locked locked;
    while (!scheduler->active.empty()) {
      if (orError_t error = waitForDevice(locked, std::nullopt); error != orSuccess) {
        return error;
      }
    }
    if (!scheduler->stopped) {
      scheduler->mode = mode;
      seedChaos(seed);
    }
    return orSuccess;
  });
}

orError_t orGetExecutionMode(orExecutionMode* mode, uint64_t* seed) {
  return deviceCall(__func__, [&] {
    if (mode != nullptr) {
      *mode = scheduler->mode;
    }
    if (seed != nullptr) {
      *seed = chaosSeed();
    }
    return orSuccess;
  });
}

orError_t orSetIdleCallback(orHostFn_t fn, void* userData, unsigned int delayMicroseconds) {
  return deviceCall(__func__, [&] {
    Locked locked;
    scheduler->idleCallback = {fn, userData, std::chrono::microseconds(delayMicroseconds)};
    locked.wakeLater(scheduler->engines[static_cast<size_t>(Engine::compute)]);
    return orSuccess;
  });
}
