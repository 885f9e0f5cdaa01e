#include <cxxabi.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "activity.h"
#include "device.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// Runs queued work. An *engine* is a thread: one for kernels, one for copies, and one for functions of the host. Each
// starts with its first work, takes ready streams by priority, and ends with the process.
namespace openreg {
namespace {

// How long fork() waits for a running kernel or copy, which may wait for a lock that the forking thread holds.
constexpr std::chrono::seconds kLongestFork{1};

constexpr std::array<const char*, kEngines> kThreadNames = {"openreg compute", "openreg copy", "openreg host"};

// Takes the ready stream with the most urgent priority; if several have it, the first of them.
StreamPtr takeReady(EngineState& engine) {
  const auto next = std::min_element(
      engine.ready.begin(), engine.ready.end(), [](auto& a, auto& b) { return a->priority < b->priority; });
  StreamPtr stream = std::move(*next);
  engine.ready.erase(next);
  return stream;
}

// kNap: the length of one nap. If nobody waits for a launch, a thread may notice the launch late by one nap. kNapping:
// how long an idle thread naps before it sleeps. In orExecutionChaos work becomes ready when somebody waits for it, so a
// thread that napped would only take time from the host.
constexpr std::chrono::microseconds kNap{50};
constexpr std::chrono::microseconds kNapping{1000};

// To be called with the scheduler's lock.
void noteStopped(EngineState& engine) {
  engine.running = false;
  if (scheduler->stopped || scheduler->forking > 0) {
    scheduler->stoppedRunning.notify_all();
  }
}

// Waits for a running kernel and copy. Does not wait in a function of a stream, which would wait for itself.
void waitForRunningWork(Locked& locked, std::chrono::seconds longest) {
  if (!isRunningHere()) {
    const auto runs = [](Engine engine) { return scheduler->engines[static_cast<size_t>(engine)].running; };
    scheduler->stoppedRunning.wait_for(
        locked.lock(), longest, [&] { return !runs(Engine::compute) && !runs(Engine::copy); });
  }
}

// Sleeps until a stream is ready and the engine may run work. `hasWorked`: whether the thread has had work since it
// last called the idle callback.
void waitForWork(EngineState& engine, std::unique_lock<std::mutex>& lock, bool& hasWorked) {
  using Clock = std::chrono::steady_clock;
  using Thread = EngineState::Thread;
  const bool computes = &engine == &scheduler->engines[static_cast<size_t>(Engine::compute)];
  const auto mayRun = [] { return !scheduler->stopped && scheduler->forking == 0; };
  Clock::time_point begin{};
  while (engine.ready.empty() || !mayRun()) {
    const Clock::time_point now = Clock::now();
    if (begin == Clock::time_point()) {
      begin = now;
    }
    const IdleCallback callback = scheduler->idleCallback;
    const bool calls = computes && hasWorked && callback.fn != nullptr && mayRun();
    if (calls && now - begin >= callback.delay) {
      hasWorked = false;
      engine.running = true;
      lock.unlock();
      callback.fn(callback.data);
      lock.lock();
      noteStopped(engine);
    } else if (now - begin < kNapping && !isChaos()) {
      engine.thread = Thread::naps;
      engine.changed.wait_for(lock, kNap);
    } else {
      engine.thread = Thread::sleeps;
      engine.changed.wait_until(lock, calls ? begin + callback.delay : now + kLong);
    }
    engine.thread = Thread::awake;
  }
}

void runEngine(EngineState& engine) {
  // The destructor also runs if a host function ends its thread. Before version 3.14, CPython ends a thread that asks
  // for the interpreter after the interpreter was finalized.
  struct EngineThread {
    EngineState& engine;

    ~EngineThread() {
      const std::lock_guard lock(scheduler->mutex);
      engine.started = engine.running = false;
      engine.self = nullptr;
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
  {
    const std::lock_guard lock(scheduler->mutex);
    engine.self = &thisThread;
  }
  bool hasWorked = false;
  for (;;) {
    StreamPtr stream;
    Work work;
    uint64_t count;
    {
      std::unique_lock lock(scheduler->mutex);
      noteStopped(engine);
      waitForWork(engine, lock, hasWorked);
      engine.running = true;
      stream = takeReady(engine);
      work = std::get<Work>(stream->queue.front());
      count = stream->completed + 1;
      stream->queue.pop_front();
      stream->holder = &thisThread;
    }
    hasWorked = true;
    run(stream, work, count);
  }
}

} // namespace

bool isRunningHere() {
  return thisThread.function != nullptr;
}

bool isRunningHere(const Stream& stream) {
  for (const Frame* frame = thisThread.function; frame != nullptr; frame = frame->outer) {
    if (frame->stream == &stream) {
      return true;
    }
  }
  return false;
}

namespace {

// Work that another thread will complete (orLaunchDeferred).
struct Deferred {
  StreamPtr stream;
  uint64_t count; // the number of the work in its stream
  orKernel what;
  ActivityId id;
  uint64_t scheduled;
  Stream* launchedOn;
};

HandleTable<Deferred, orCompletion_t>& deferredWork() {
  static auto* const table =
      new HandleTable<Deferred, orCompletion_t>(); // other threads use it while the process exits
  return *table;
}

void keepFirstFailure(const StreamPtr& stream, std::exception_ptr&& exception) {
  auto& failures = scheduler->failures;
  const bool isFirst = std::none_of(failures.begin(), failures.end(), [&](auto& f) { return f.stream == stream; });
  if (exception && isFirst && !scheduler->stopped) {
    // Moved: the caller keeps no reference. So the destructor of the exception, which may run any code, runs on the
    // thread that takes or drops the failure.
    failures.push_back({stream, std::move(exception)});
  }
}

// The stream that gets the failures of work which runs on `stream`. To be called with the lock.
StreamPtr failingStream(const StreamPtr& stream, const Stream* launchedOn) {
  return launchedOn != nullptr && launchedOn->busy ? scheduler->active[launchedOn->activeIndex] : stream;
}

// The stream that subscribers are told of, for that work.
orStream_t toldStream(const StreamPtr& stream, const Stream* launchedOn) {
  return launchedOn != nullptr ? launchedOn->handle : stream->handle;
}

// Runs `work` on this thread, for the stream. An exception that leaves the work is the stream's failure.
// `atEnd(locked)` is called last, even if the thread ends within the work.
template <typename AtEnd>
void execute(const StreamPtr& stream, const Work& work, const AtEnd& atEnd) {
  struct RunningWork {
    const StreamPtr& stream;
    const AtEnd& atEnd;
    const Frame frame;
    Stream* const launchedOn;
    const int outerDevice = exchangeDevice(stream->device);
    std::exception_ptr exception{};

    RunningWork(const StreamPtr& stream, const AtEnd& atEnd, const Work& work)
        : stream(stream),
          atEnd(atEnd),
          frame{stream.get(), thisThread.function, work.what.name},
          launchedOn(work.launchedOn) {
      thisThread.function = &frame;
    }

    ~RunningWork() {
      thisThread.function = frame.outer;
      exchangeDevice(outerDevice);
      Locked locked;
      keepFirstFailure(failingStream(stream, launchedOn), std::move(exception));
      atEnd(locked);
    }
  };

  RunningWork running(stream, atEnd, work);
  const orStream_t told = toldStream(stream, work.launchedOn);
  const auto kind = static_cast<orActivityKind>(work.kind);
  const bool isTold = work.kind != 0 && orIsObserved(kind);
  ActivityId id;
  if (isTold) {
    id = tellBegin(kind, stream->device, told, work.what, work.call);
  }
  try {
    const auto intercepted = isTold ? intercept(kind, stream->device, work.what) : nullptr;
    work.fn(work.data); // runs even if the work is to fail, because `fn` deletes its data
    if (intercepted) {
      intercepted->finish();
    }
  } catch (const abi::__forced_unwind&) {
    throw; // pthread_exit or pthread_cancel: must not be stopped. CPython before 3.14 ends threads in this way at exit
  } catch (...) {
    running.exception = std::current_exception();
  }
  if (isTold) {
    const orKernel what{work.what.name, nullptr, nullptr}; // the work may have deleted its data
    tellEnd(kind, stream->device, told, what, id, running.exception != nullptr);
  }
}

// Starts work that another thread will complete.
void begin(const StreamPtr& stream, const Work& work, uint64_t count) {
  orCompletion_t completion{};
  struct BeginningWork {
    const Frame frame;
    const int outerDevice;
    ~BeginningWork() {
      thisThread.function = frame.outer;
      exchangeDevice(outerDevice);
    }
  };
  try {
    const BeginningWork running{{stream.get(), thisThread.function, work.what.name}, exchangeDevice(stream->device)};
    thisThread.function = &running.frame;
    ActivityId id;
    if (work.kind != 0 && orIsObserved(orActivityKernel)) {
      id = tellBegin(orActivityKernel, stream->device, toldStream(stream, work.launchedOn), work.what, work.call);
    }
    completion = deferredWork().add(
        std::make_shared<Deferred>(Deferred{stream, count, work.what, id, work.scheduled, work.launchedOn}));
    stream->holder = nullptr; // whoever waits for the stream does not wait for this thread
    beginDeferred(stream);
    work.deferred(work.data, completion);
  } catch (const abi::__forced_unwind&) {
    throw; // as in execute()
  } catch (...) {
    complete(completion, std::current_exception());
  }
}

} // namespace

bool complete(orCompletion_t completion, std::exception_ptr exception) {
  const std::shared_ptr<Deferred> work = deferredWork().find(completion);
  if (!work || !deferredWork().remove(completion)) {
    return false;
  }
  if (work->id.id != 0) {
    const orKernel told{work->what.name, nullptr, nullptr};
    const orStream_t on = toldStream(work->stream, work->launchedOn);
    tellEnd(orActivityKernel, work->stream->device, on, told, work->id, exception != nullptr);
  }
  Locked locked;
  forget(work->scheduled);
  keepFirstFailure(failingStream(work->stream, work->launchedOn), std::move(exception));
  const bool isAbandoned = work->stream->completed >= work->count; // because the process exits
  if (!isAbandoned && !holdCompletion(locked, *work->stream)) {
    completeAndMoveOn(locked, work->stream);
  }
  return true;
}

void run(const StreamPtr& stream, const Work& work, uint64_t count) {
  if (work.deferred != nullptr) {
    return begin(stream, work, count);
  }
  execute(stream, work, [&](Locked& locked) {
    forget(work.scheduled);
    endHeld(locked, *stream);
    if (stream->completed < count) { // otherwise the work was abandoned, because the process exits
      stream->holder = nullptr;
      completeAndMoveOn(locked, stream);
    }
  });
}

void runWithin(const StreamPtr& stream, const Work& work) {
  execute(stream, work, [](Locked&) {});
}

void startDeviceThread(std::function<void()> fn) {
  // The new thread inherits the signal mask that is set here. The mask blocks signals, so that the host's own threads
  // handle them. It does not block the signals that a thread causes itself, such as SIGSEGV.
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
  std::thread(std::move(fn)).detach();
}

void startThread(EngineState& engine) {
  if (!engine.started) {
    startDeviceThread([&engine] { runEngine(engine); });
    engine.started = true;
  }
}

void pauseEngines() {
  if (isInBadFork()) { // a child has no engines, and may not wait for the lock
    return;
  }
  Locked locked;
  ++scheduler->forking;
  waitForRunningWork(locked, kLongestFork);
}

void resumeEngines() {
  if (isInBadFork()) {
    return;
  }
  Locked locked;
  --scheduler->forking;
  for (EngineState& engine : scheduler->engines) {
    if (!engine.ready.empty()) {
      locked.wakeLater(engine);
    }
  }
}

void stopEngines() {
  Locked locked;
  if (isChaos() && !isRunningHere()) {
    runHeld(locked);
  }
  scheduler->stopped = true;
  setMode(orExecutionInline);
  waitForRunningWork(locked, kLongestExit);
  // Never deleted: the items may refer to objects that are gone.
  static auto* const abandoned = new std::vector<std::deque<Item>>();
  scheduler->held.clear();
  while (!scheduler->active.empty()) {
    const StreamPtr stream = scheduler->active.back();
    abandoned->push_back(std::exchange(stream->queue, {}));
    stream->completed = stream->submitted;
    stream->blocked.clear();
    locked.wakeLater(stream);
    setBusy(stream, false);
    stream->turn = std::exchange(stream->hostKernel, false) ? Turn::taken : Turn::free;
  }
}

} // namespace openreg
