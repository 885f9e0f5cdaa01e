#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "error.h"
#include "graph.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// Threads of the host wait for streams, marks and devices.

namespace openreg {
namespace {

std::atomic<orBeforeWaitFn_t> waitCallbackBefore{nullptr};
std::atomic<orAfterWaitFn_t> waitCallbackAfter{nullptr};

} // namespace

orError_t notPermitted() {
  return fail(
      orErrorNotPermitted,
      "called inside a function that a stream runs, it would have to wait for queued work, which may be waiting for "
      "that function; call it on a thread of the host");
}

orError_t waitFor(Locked& locked, Stream& stream, uint64_t count) {
  if (stream.completed >= count || hasTurnHere(stream)) { // a kernel gets the turn when all earlier items are done
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
  require(locked, stream, count);
  sleepUntil(locked, stream, false, [&] {
    const bool done = stream.completed >= count;
    scheduler->waiting -= done ? 1 : 0;
    stream.progressAt = done ? stream.progressAt : std::min(stream.progressAt, count);
    return done;
  });
  return orSuccess;
}

orError_t waitForDevice(Locked& locked, std::optional<int> device) {
  std::vector<Mark> marks;
  for (const StreamPtr& stream : scheduler->active) {
    if (!device || stream->device == *device) {
      marks.push_back({stream, stream->submitted});
    }
  }
  if (!isRunningHere()) {
    for (const Mark& mark : marks) { // before the first wait: the schedule chooses among all of them
      need(*mark.stream, mark.count);
    }
  }
  for (const Mark& mark : marks) {
    if (orError_t error = waitFor(locked, *mark.stream, mark.count); error != orSuccess) {
      return error;
    }
  }
  return orSuccess;
}

void* beforeWait() {
  const orBeforeWaitFn_t before = waitCallbackBefore;
  return before != nullptr ? before() : nullptr;
}

void afterWait(void* token) {
  waitCallbackAfter.load()(token);
}

bool isPending(const StreamPtr& stream) {
  const auto pending = [&] { return stream->submitted != stream->completed && !hasTurnHere(*stream); };
  Locked locked;
  if (pending()) {
    advance(locked, stream);
  }
  return pending();
}

bool isPending(const Event& event) {
  Locked locked;
  if (!event.mark.reached()) {
    advance(locked, StreamPtr(event.mark.stream));
  }
  return !event.mark.reached();
}

void letRun(const Mark& mark) {
  Locked locked;
  if (mark.stream) {
    require(locked, *mark.stream, mark.count);
  }
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
    failure = takeFailureOfDevice(device);
  }
  return reportOrLost(std::move(failure), device);
}

orError_t waitForAllDevices() {
  if (orError_t error = mayCallUnsafe(); error != orSuccess) {
    return error;
  }
  Locked locked;
  return waitForDevice(locked, std::nullopt);
}

} // namespace openreg

using namespace openreg;

orError_t orSetWaitCallbacks(orBeforeWaitFn_t before, orAfterWaitFn_t after) {
  enter(__func__);
  if (isInBadFork()) {
    return start(); // which returns the error of a forked child
  }
  if ((before == nullptr) != (after == nullptr)) {
    return fail(orErrorInvalidValue, "%s is NULL; pass both, or neither", before == nullptr ? "before" : "after");
  }
  if (after != nullptr) {
    waitCallbackAfter = after; // first, because a wait that has called `before` calls `after`
  }
  waitCallbackBefore = before;
  return orSuccess;
}
