#include "scheduler.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "chaos.h"
#include "runtime.h"
#include "scheduler_state.h"

namespace openreg {

Scheduler* scheduler = nullptr;

namespace {

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
  if (isRunningHere()) {
    return stream.completed + (isRunningHere(stream) ? 1 : 0) >= count ? orSuccess : notPermitted();
  }
  if (stream.completed >= count) {
    return orSuccess;
  }
  ++scheduler->waiting;
  for (EngineState& engine : scheduler->engines) {
    if (engine.thread == EngineState::Thread::naps && !engine.ready.empty()) {
      engine.changed.notify_one();
    }
  }
  while (stream.completed < count) {
    stream.progressAt = std::min(stream.progressAt, count);
    stream.progress.wait(locked.lock());
  }
  --scheduler->waiting;
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

// Whether work may run on the calling thread: the mode allows it, and nothing is pending.
bool mayBegin(const Stream& stream, bool mayRunInline) {
  const orExecutionMode mode = scheduler->mode;
  return !stream.busy && (mode == orExecutionInline || (mode == orExecutionAsync && mayRunInline));
}

// Counts an item that was never in the queue as submitted; returns its number, for run().
uint64_t begin(const StreamPtr& stream) {
  setBusy(stream, true);
  return ++stream->submitted;
}

orError_t enqueue(Locked& locked, const StreamPtr& stream, Item item) {
  if (const Work* work = std::get_if<Work>(&item)) {
    if (stream->submitted - stream->completed >= kMaxPending && !isRunningHere()) {
      waitFor(locked, *stream, stream->submitted - kMaxPending / 2); // half: not a change of thread for every item
    }
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

} // namespace

void startScheduler(orExecutionMode mode, uint64_t seed) {
  scheduler = new Scheduler();
  scheduler->mode = mode;
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
  uint64_t count;
  {
    const Locked locked;
    if (!mayBegin(*stream, mayRunInline)) {
      return false;
    }
    count = begin(stream);
  }
  run(stream, work, count);
  return true;
}

orError_t enqueue(const StreamPtr& stream, Item item) {
  Locked locked;
  return enqueue(locked, stream, std::move(item));
}

orError_t launch(const StreamPtr& stream, const Work& work, bool mayRunInline) {
  uint64_t count;
  {
    Locked locked;
    if (!mayBegin(*stream, mayRunInline)) {
      return enqueue(locked, stream, work);
    }
    count = begin(stream);
  }
  run(stream, work, count);
  return orSuccess;
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
  if (isRunningHere()) {
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

bool orExecutesInline(void) {
  return isStarted() && scheduler->mode == orExecutionInline;
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
