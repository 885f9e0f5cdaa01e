#include "scheduler.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "error.h"
#include "graph.h"
#include "hooks.h"
#include "ipc_event.h"
#include "runtime.h"
#include "scheduler_state.h"

bool orInlineFlag = false;

namespace openreg {

Scheduler* scheduler = nullptr;

void setMode(orExecutionMode mode) {
  scheduler->mode = mode;
  publishInlineFlag();
}

void publishInlineFlag() {
  __atomic_store_n(&orInlineFlag, scheduler->mode == orExecutionInline && !orMayCapture(), __ATOMIC_RELEASE);
}

static void setSeed(uint64_t seed) {
  scheduler->seed = seed;
  if (schedule != nullptr) {
    schedule->seed(seed);
  }
}

void startScheduler(orExecutionMode mode, uint64_t seed) {
  scheduler = new Scheduler();
  setMode(mode);
  setSeed(seed);
  // pauseEngines() waits for a running kernel. The handler that is registered last is called first at fork(). So no
  // handler that was registered earlier holds a lock yet that the kernel could wait for.
  pthread_atfork(&pauseEngines, &resumeEngines, nullptr);
  std::atexit([] {
    if (!isInBadFork()) { // a child has no engines, and may not wait for the lock
      stopEngines();
    }
  });
}

bool isChaos() {
  return scheduler->mode.load(std::memory_order_relaxed) == orExecutionChaos;
}

void record(const std::shared_ptr<Event>& event, const StreamPtr& stream) {
  Locked locked;
  const bool hasTurn = hasTurnHere(*stream);
  if (!hasTurn) {
    noteCall(locked, stream, "record", nullptr);
  }
  event->number = event->shared ? event->shared->record() : 0;
  if (hasTurn) { // all earlier items are done
    event->mark = {stream, stream->completed};
    reach(*event, event->number);
    return;
  }
  event->mark = {stream, stream->submitted + 1};
  push(locked, stream, Record{event, event->number});
}

void recordNow(const std::shared_ptr<Event>& event, const StreamPtr& stream) {
  const Locked locked;
  event->mark = {stream, stream->completed};
  reach(*event, 0);
}

EventState stateOf(const Event& event) {
  const Locked locked;
  return {event.mark, event.mark.reached(), event.nanoseconds};
}

} // namespace openreg

using namespace openreg;

orError_t orSetExecutionMode(orExecutionMode mode, uint64_t seed) {
  return deviceCall(__func__, [&]() -> orError_t {
    if (mode < orExecutionInline || mode > orExecutionChaos) {
      return fail(orErrorInvalidValue, "mode is %d, which is no orExecutionMode (0 to 2)", mode);
    }
    if (mode == orExecutionChaos && schedule == nullptr) {
      return fail(orErrorNotSupported, "%s", kNoChaos);
    }
    if (orError_t error = orMayCapture() ? checkNoCapture(kAllDevices) : orSuccess; error != orSuccess) {
      return error;
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
      setSeed(seed);
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
      *seed = scheduler->seed;
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
