#include "scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "chaos.h"
#include "injection.h"
#include "runtime.h"
#include "scheduler_state.h"

bool orInlineFlag = false;

namespace openreg {

Scheduler* scheduler = nullptr;

namespace {

std::atomic<orBeforeWaitFn_t> waitCallbackBefore{nullptr};
std::atomic<orAfterWaitFn_t> waitCallbackAfter{nullptr};

// A host that is faster than the device must not fill the memory with queued work: from here on launches wait.
constexpr uint64_t kMaxPending = 1024;

orError_t notPermitted() {
  return fail(
      orErrorNotPermitted,
      "called inside a function that a stream runs, it would have to wait for queued work, which may be waiting for "
      "that function; call it on a thread of the host");
}

// Waits until the stream has completed `count` items.
orError_t waitFor(Locked& locked, Stream& stream, uint64_t count) {
  if (stream.completed >= count || hasTurnHere(stream)) { // a kernel's turn comes when all before it is done
    return orSuccess;
  }
  if (isRunningHere()) {
    return stream.completed + (isRunningHere(stream) ? 1 : 0) >= count ? orSuccess : notPermitted();
  }
  ++scheduler->waiting;
  for (EngineState& engine : scheduler->engines) {
    if (engine.thread == EngineState::Thread::naps && !engine.ready.empty()) {
      engine.changed.notify_one();
    }
  }
  sleepUntil(locked, stream, false, [&] {
    const bool done = stream.completed >= count;
    scheduler->waiting -= done ? 1 : 0;
    stream.progressAt = done ? stream.progressAt : std::min(stream.progressAt, count);
    return done;
  });
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
std::optional<Failure> takeFailureIf(Matches&& matches) {
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

// Whether the mode lets work run in the launching call.
bool runsInline(bool mayRunInline) {
  const orExecutionMode mode = scheduler->mode;
  return mode == orExecutionInline || (mode == orExecutionAsync && mayRunInline);
}

// Claims the stream for a launch: waits for room in its queue, and for kernels of other threads. False: `noWait`, and it
// would have to.
bool claimForLaunch(Locked& locked, const StreamPtr& stream, bool noWait) {
  const bool hasRoom = stream->submitted - stream->completed < kMaxPending || isRunningHere();
  if (noWait) {
    claim(stream);
    const bool wouldWait = stream->hostKernel || stream->kernelsWaiting > 0;
    if (wouldWait && isIdle(*stream)) {
      giveUp(locked, stream);
    }
    return hasRoom && !wouldWait;
  }
  if (!hasRoom) {
    waitFor(locked, *stream, stream->submitted - kMaxPending / 2); // half: not a change of thread for every item
  }
  claimBetweenKernels(locked, stream);
  return true;
}

// The number of the work that the caller is to run() now on the claimed stream; 0: it must be queued, because something is
// pending, or because of the mode.
uint64_t beginInline(const StreamPtr& stream, bool mayRunInline) {
  if (!isIdle(*stream) || !runsInline(mayRunInline)) {
    return 0;
  }
  stream->holder = &thisThread;
  return ++stream->submitted;
}

// Of work for a claimed stream.
orError_t enqueue(Locked& locked, const StreamPtr& stream, const Work& work) {
  try {
    startThread(scheduler->engines[static_cast<size_t>(work.engine)]);
  } catch (const std::system_error& error) {
    forgetHostMemory(work.hostMemory);
    if (isIdle(*stream)) {
      giveUp(locked, stream);
    }
    return fail(
        orErrorOperatingSystem,
        "cannot start a thread to run queued work: %s. Free memory, or raise the limit on processes (ulimit -u)",
        error.what());
  }
  push(locked, stream, work);
  return orSuccess;
}

} // namespace

std::optional<Failure> takeFailure(const Stream& stream) {
  return takeFailureIf([&](const Stream& failed) { return &failed == &stream; });
}

orError_t report(std::optional<Failure> failure) {
  if (!failure) {
    return orSuccess;
  }
  try {
    std::rethrow_exception(failure->exception);
  } catch (const InjectedFailure& injected) {
    return failVerbatim(injected.code, injected.what());
  } catch (...) {
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

void* beforeWait() {
  const orBeforeWaitFn_t before = waitCallbackBefore;
  return before != nullptr ? before() : nullptr;
}

void afterWait(void* token) {
  waitCallbackAfter.load()(token);
}

void setMode(orExecutionMode mode) {
  scheduler->mode = mode;
  __atomic_store_n(&orInlineFlag, mode == orExecutionInline, __ATOMIC_RELEASE);
}

void startScheduler(orExecutionMode mode, uint64_t seed) {
  scheduler = new Scheduler();
  setMode(mode);
  seedChaos(seed);
  std::atexit([] {
    if (!isInBadFork()) { // a child has no engines, and may not wait for the lock
      stopEngines();
    }
  });
}

bool isChaos() {
  return scheduler->mode.load(std::memory_order_relaxed) == orExecutionChaos;
}

bool runNow(const StreamPtr& stream, const Work& work, bool mayRunInline) {
  if (hasTurnHere(*stream)) {
    runWithin(stream, work);
    return true;
  }
  if (!runsInline(mayRunInline)) {
    return false;
  }
  uint64_t count;
  {
    Locked locked;
    claimBetweenKernels(locked, stream);
    count = beginInline(stream, mayRunInline);
  }
  if (count != 0) {
    run(stream, work, count);
  }
  return count != 0;
}

orError_t launch(const StreamPtr& stream, Work work, unsigned int flags) {
  if (hasTurnHere(*stream)) {
    if (work.deferred != nullptr) {
      return fail(
          orErrorNotPermitted,
          "called inside a kernel that has the turn of the stream, the work could not complete before that kernel "
          "ends; call it after the kernel");
    }
    runWithin(stream, work);
    return orSuccess;
  }
  if (isChaos()) {
    work.hostMemory = noteHostMemory(work);
  }
  uint64_t count;
  {
    Locked locked;
    if (!claimForLaunch(locked, stream, (flags & orLaunchNoWait) != 0)) {
      forgetHostMemory(work.hostMemory);
      return orErrorNotReady;
    }
    count = beginInline(stream, (flags & orLaunchMayRunInline) != 0);
    if (count == 0) {
      return enqueue(locked, stream, work);
    }
  }
  run(stream, work, count);
  return orSuccess;
}

orError_t awaitLaunch(const StreamPtr& stream) {
  if (!hasTurnHere(*stream)) {
    Locked locked;
    claimForLaunch(locked, stream, false);
    if (isIdle(*stream)) {
      giveUp(locked, stream);
    }
  }
  return orSuccess;
}

orError_t waitForEvent(const StreamPtr& stream, const Mark& mark) {
  Locked locked;
  if (!hasTurnHere(*stream)) {
    push(locked, stream, Mark(mark));
    return orSuccess;
  }
  return mark.stream ? waitFor(locked, *mark.stream, mark.count) : orSuccess;
}

orError_t launchAndWait(const StreamPtr& stream, const Work& work) {
  if (!hasTurnHere(*stream)) {
    Locked locked;
    if (orError_t error = waitFor(locked, *stream, stream->submitted); error != orSuccess) {
      return error;
    }
  }
  if (runNow(stream, work, true)) {
    return orSuccess;
  }
  if (isRunningHere()) {
    return notPermitted();
  }
  if (orError_t error = launch(stream, work, orLaunchDefault); error != orSuccess) {
    return error;
  }
  Locked locked;
  return waitFor(locked, *stream, stream->submitted);
}

void record(const std::shared_ptr<Event>& event, const StreamPtr& stream) {
  Locked locked;
  if (hasTurnHere(*stream)) { // everything before it is done
    event->mark = {stream, stream->completed};
    setTime(*event);
    return;
  }
  event->mark = {stream, stream->submitted + 1};
  push(locked, stream, Record{event});
}

EventState stateOf(const Event& event) {
  const Locked locked;
  return {event.mark, event.mark.reached(), event.nanoseconds};
}

bool isPending(const Stream& stream) {
  const Locked locked;
  return stream.submitted != stream.completed && !hasTurnHere(stream);
}

// The failure of a device that is lost is that it is lost.
static orError_t reportOrLost(std::optional<Failure> failure, int device) {
  const orError_t lost = checkLost(device);
  return lost != orSuccess ? lost : report(std::move(failure));
}

orError_t synchronize(const StreamPtr& stream) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitFor(locked, *stream, stream->submitted); error != orSuccess) {
      return error;
    }
    failure = takeFailure(*stream);
  }
  return reportOrLost(std::move(failure), stream->device);
}

orError_t synchronize(const Mark& mark) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitFor(locked, *mark.stream, mark.count); error != orSuccess) {
      return error;
    }
    failure = takeFailure(*mark.stream);
  }
  return reportOrLost(std::move(failure), mark.stream->device);
}

orError_t synchronizeDevice(int device) {
  std::optional<Failure> failure;
  {
    Locked locked;
    if (orError_t error = waitForDevice(locked, device); error != orSuccess) {
      return error;
    }
    failure = takeFailureIf([&](const Stream& failed) { return failed.device == device; });
  }
  return reportOrLost(std::move(failure), device);
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
    const auto isPending = [](const StreamPtr& stream) {
      return stream->submitted != stream->completed && !hasTurnHere(*stream);
    };
    while (std::any_of(scheduler->active.begin(), scheduler->active.end(), isPending)) {
      if (orError_t error = waitForDevice(locked, std::nullopt); error != orSuccess) {
        return error;
      }
    }
    if (!scheduler->stopped) {
      setMode(mode);
      seedChaos(seed);
    }
    return orSuccess;
  });
}

bool orExecutesInline(void) {
  return __atomic_load_n(&orInlineFlag, __ATOMIC_ACQUIRE);
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

orError_t orSetWaitCallbacks(orBeforeWaitFn_t before, orAfterWaitFn_t after) {
  enter(__func__);
  if (isInBadFork()) {
    return start(); // refuses
  }
  if ((before == nullptr) != (after == nullptr)) {
    return fail(orErrorInvalidValue, "%s is NULL; pass both, or neither", before == nullptr ? "before" : "after");
  }
  if (after != nullptr) {
    waitCallbackAfter = after; // first: a wait that has called `before` will call it
  }
  waitCallbackBefore = before;
  return orSuccess;
}

orError_t orSetIdleCallback(orHostFn_t fn, void* userData, unsigned int delayMicroseconds) {
  return deviceCall(__func__, [&] {
    Locked locked;
    scheduler->idleCallback = {fn, userData, std::chrono::microseconds(delayMicroseconds)};
    locked.wakeLater(scheduler->engines[static_cast<size_t>(Engine::compute)]);
    return orSuccess;
  });
}
