#include <system_error>

#include "error.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// How work comes to a stream: it runs in the launching call, or is queued.

namespace openreg {
namespace {

// The number of pending items of a stream at which launches wait. Without this limit, a host that is faster than the
// device could fill the memory with queued work.
constexpr uint64_t kMaxPending = 1024;

// Whether the execution mode allows that work runs in the launching call.
bool runsInline(bool mayRunInline) {
  const orExecutionMode mode = scheduler->mode;
  return mode == orExecutionInline || (mode == orExecutionAsync && mayRunInline);
}

// Decides whether work for a claimed stream runs in the launching call. If so, returns the number that the caller
// passes to run(). Returns 0 if the work must be queued, because of pending work or because of the mode.
uint64_t beginInline(const StreamPtr& stream, bool mayRunInline) {
  if (!isIdle(*stream) || !runsInline(mayRunInline)) {
    return 0;
  }
  stream->holder = &thisThread;
  return ++stream->submitted;
}

// Queues work on a claimed stream.
orError_t enqueue(Locked& locked, const StreamPtr& stream, const Work& work) {
  if (const orError_t error = startThreadFor(work, locked, stream); error != orSuccess) {
    forget(work.scheduled);
    return error;
  }
  noteCall(locked, stream, "launch", work.what.name);
  push(locked, stream, work);
  return orSuccess;
}

} // namespace

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
    // Waits until half of the items are done, so that not every launch costs a change of thread.
    waitFor(locked, *stream, stream->submitted - kMaxPending / 2);
  }
  claimBetweenKernels(locked, stream);
  return true;
}

orError_t startThreadFor(const Work& work, Locked& locked, const StreamPtr& stream) {
  try {
    startThread(scheduler->engines[static_cast<size_t>(work.engine)]);
    return orSuccess;
  } catch (const std::system_error& error) {
    if (isIdle(*stream)) {
      giveUp(locked, stream);
    }
    return fail(
        orErrorOperatingSystem,
        "cannot start a thread to run queued work: %s. Free memory, or raise the limit on processes (ulimit -u)",
        error.what());
  }
}

void prepare(Work& work) {
  if (thisThread.tells) {
    work.kind = 0; // a subscriber starts the work, so no subscriber is told of it, even if it runs later
  }
  if (isChaos()) {
    work.scheduled = schedule->queued(work.what);
  }
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
  prepare(work);
  uint64_t count;
  {
    Locked locked;
    if (!claimForLaunch(locked, stream, (flags & orLaunchNoWait) != 0)) {
      forget(work.scheduled);
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
    noteCall(locked, stream, "wait", nullptr);
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

} // namespace openreg
