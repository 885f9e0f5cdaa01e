#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "activity.h"
#include "graph.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler.h"
#include "scheduler_state.h"

// The scope of a kernel on the calling thread (orKernelBegin, orKernelEnd), and the turn of a stream, which the kernel
// needs. As long as no other thread wants the turn of a persistent stream, it costs one atomic instruction to
// take the turn and one to give it back. Otherwise, and for all other streams, the scheduler decides, under its lock.

namespace openreg {
namespace {

// Whether a wait for the stream would be a wait for this thread itself. A stream waits for at most one thread, and a
// thread for at most one stream, so this function follows a single path. The path can become a circle after a wait has
// begun, when queued work becomes ready. Therefore a thread that waits asks again from time to time.
bool leadsHere(const Stream* stream) {
  constexpr int kLongestPath = 256;
  for (int step = 0; stream != nullptr && stream->busy && step < kLongestPath; ++step) {
    const HostThread* thread = nullptr;
    const bool runs = stream->submitted - stream->completed > stream->queue.size();
    if (stream->hostKernel || runs) {
      thread = stream->holder;
    } else if (stream->queue.empty()) {
      return false;
    } else if (const Mark* mark = std::get_if<Mark>(&stream->queue.front())) {
      stream = mark->stream.get();
      continue;
    } else if (const Work* work = std::get_if<Work>(&stream->queue.front())) {
      thread = scheduler->engines[static_cast<size_t>(work->engine)].self;
    }
    if (thread == &thisThread) {
      return true;
    }
    stream = thread != nullptr ? thread->waitsFor : nullptr;
  }
  return false;
}

// Claims the stream and waits until `ready()` is true. Returns false, with the stream claimed, if this thread may not
// wait.
template <typename Ready>
bool claimWhen(Locked& locked, const StreamPtr& stream, const Ready& ready) {
  const auto mayWait = [&] { return !isRunningHere() && !scheduler->stopped && !leadsHere(stream.get()); };
  for (;;) {
    claim(stream);
    if (ready() || !mayWait()) {
      return ready();
    }
    if (isIdle(*stream)) { // the turn is for another thread that waits
      giveUp(locked, stream);
    }
    require(locked, *stream, stream->submitted);
    ++stream->turnWaiters;
    sleepUntil(locked, *stream, true, [&] { return ready() || !mayWait(); });
    --stream->turnWaiters;
  }
}

[[gnu::noinline]] void endSlowly(Stream* ended) {
  if (isInBadFork()) {
    return;
  }
  Locked locked;
  if (!ended->busy) { // the process exits, and stopEngines() has released all streams
    ended->turn = Turn::free;
    return;
  }
  const StreamPtr stream = scheduler->active[ended->activeIndex];
  stream->hostKernel = false;
  locked.wakeLater(stream);
  moveOn(locked, stream);
}

void end(orKernelScope* scope) {
  thisThread.kernel = scope->outer;
  if (auto* const stream = static_cast<Stream*>(scope->turn)) {
    stream->holder.store(nullptr, std::memory_order_relaxed);
    Turn expected = Turn::taken;
    if (!stream->turn.compare_exchange_strong(expected, Turn::free, std::memory_order_release)) [[unlikely]] {
      endSlowly(stream);
    }
  }
}

// The outermost kernel of this thread, if the interceptor has something to do at its end. If the kernel is no longer
// observed when it ends, the object stays until the thread's next observed kernel begins.
struct InterceptedKernel {
  const orKernelScope* scope;
  std::unique_ptr<InterceptedWork> work;
};
thread_local constinit std::unique_ptr<InterceptedKernel> interceptedKernel;

// Fills in the members that only subscribers need, calls the interceptor (hooks.h), and tells the subscribers. The
// functions with `noinline` are not inlined: otherwise every kernel would save and restore the registers that they use.
[[gnu::noinline]] orError_t tellKernelBegin(orKernelScope* scope, const Stream& stream, const orKernel* kernel) {
  scope->stream = stream.handle;
  scope->device = stream.device;
  if (scope->outer == nullptr && !isRunningHere()) { // otherwise it is part of a kernel that has passed its point
    interceptedKernel.reset();
    if (const orError_t error = checkCall(kAtLaunch, stream.device); error != orSuccess) {
      end(scope);
      return error;
    }
    if (auto work = intercept(orActivityKernel, stream.device, *kernel)) {
      if (const orError_t error = work->error(); error != orSuccess) {
        end(scope);
        return error;
      }
      interceptedKernel = std::make_unique<InterceptedKernel>(InterceptedKernel{scope, std::move(work)});
    }
  }
  scope->id = tellBegin(orActivityKernel, scope->device, scope->stream, *kernel, currentCall()).id;
  const orError_t stop = takeStop();
  if (stop != orSuccess) {
    tellEnd(orActivityKernel, scope->device, scope->stream, *kernel, {scope->id, currentCall()}, true);
    end(scope);
  }
  return stop;
}

[[gnu::noinline]] orError_t beginSlowly(orKernelScope* scope, orStream_t handle, const orKernel* kernel) {
  return deviceCall("orKernelBegin", [&]() -> orError_t {
    if (scope == nullptr || kernel == nullptr) {
      return fail(orErrorInvalidValue, "%s is NULL", scope == nullptr ? "scope" : "kernel");
    }
    const StreamPtr stream = resolveStream(handle);
    if (!stream) {
      return orErrorInvalidResourceHandle;
    }
    if (isCapturing(*stream)) {
      const std::string what = std::string(kernel->name != nullptr ? kernel->name : "the kernel") +
                               " is computed on the calling thread, which is not supported in a capture yet. Call it "
                               "before the capture or after it";
      return refuseInCapture(*stream, what.c_str());
    }
    bool hasTurn = false;
    std::optional<Failure> failure;
    if (!hasTurnHere(*stream) && !isRunningHere(*stream)) {
      const bool waits = stream->turn != Turn::free;
      const ObservedCall call(
          waits ? orActivitySynchronization : kNoActivity, "orKernelBegin", stream->device, stream.get());
      Locked locked;
      ++stream->kernelsWaiting;
      hasTurn = claimWhen(locked, stream, [&] { return isIdle(*stream); });
      --stream->kernelsWaiting;
      if (stream->turnWaiters > 0) {
        locked.wakeLater(stream); // wakes launches, which wait until no kernel waits for the turn
      }
      if (hasTurn) {
        if (scheduler->mode != orExecutionInline) {
          failure = takeFailure(*stream);
        }
        if (failure) {
          giveUp(locked, stream);
        } else {
          stream->hostKernel = true;
          stream->holder = &thisThread;
        }
      }
    }
    if (failure) {
      return report(std::move(failure));
    }
    *scope = {};
    scope->outer = thisThread.kernel;
    scope->turn = hasTurn ? stream.get() : nullptr;
    scope->kernel = kernel;
    thisThread.kernel = scope;
    return orIsObserved(orActivityKernel) ? tellKernelBegin(scope, *stream, kernel) : orSuccess;
  });
}

} // namespace

void claim(const StreamPtr& stream) {
  if (!stream->busy) {
    setBusy(stream, true);
    stream->hostKernel = stream->turn.exchange(Turn::scheduled) == Turn::taken;
  }
}

bool isIdle(const Stream& stream) {
  return !stream.hostKernel && stream.submitted == stream.completed;
}

void giveUp(Locked& locked, const StreamPtr& stream) {
  setBusy(stream, false);
  // After a failure, and in a capture, the turn stays `scheduled`, so the next kernel comes to the scheduler and gets
  // the failure, or is refused.
  const auto& failures = scheduler->failures;
  const bool failed = std::any_of(failures.begin(), failures.end(), [&](auto& f) { return f.stream == stream; });
  stream->turn.store(failed || stream->capturing ? Turn::scheduled : Turn::free, std::memory_order_release);
  if (stream->turnWaiters > 0) {
    locked.wakeLater(stream);
  }
}

void claimBetweenKernels(Locked& locked, const StreamPtr& stream) {
  claimWhen(locked, stream, [&] { return !stream->hostKernel && stream->kernelsWaiting == 0; });
}

const char* nameOfRunningKernel() {
  if (thisThread.kernel != nullptr) {
    return thisThread.kernel->kernel->name;
  }
  return thisThread.function != nullptr ? thisThread.function->name : nullptr;
}

bool hasTurnHere(const Stream& stream) {
  for (const orKernelScope* scope = thisThread.kernel; scope != nullptr; scope = scope->outer) {
    if (scope->turn == &stream) {
      return true;
    }
  }
  return false;
}

} // namespace openreg

using namespace openreg;

namespace {

[[gnu::noinline]] void tellAndEnd(orKernelScope* scope, bool failed) {
  if (scope->id != 0 && interceptedKernel && interceptedKernel->scope == scope) {
    interceptedKernel->work->finish();
    interceptedKernel.reset();
  }
  if (scope->id != 0) {
    const ActivityId id{scope->id, currentCall()};
    tellEnd(orActivityKernel, scope->device, scope->stream, *scope->kernel, id, failed);
  }
  end(scope);
}

} // namespace

int orKernelDepth(void) {
  int depth = 0;
  for (const orKernelScope* kernel = thisThread.kernel; kernel != nullptr; kernel = kernel->outer) {
    ++depth;
  }
  for (const Frame* function = thisThread.function; function != nullptr; function = function->outer) {
    ++depth;
  }
  return depth;
}

orError_t orKernelBegin(orKernelScope* scope, orStream_t handle, const orKernel* kernel) {
  Stream* const stream = findPersistent(handle); // null in a forked child
  Turn expected = Turn::free;
  if (stream == nullptr || !stream->turn.compare_exchange_strong(expected, Turn::taken, std::memory_order_acquire))
      [[unlikely]] {
    return beginSlowly(scope, handle, kernel);
  }
  stream->holder.store(&thisThread, std::memory_order_relaxed);
  scope->outer = thisThread.kernel;
  scope->turn = stream;
  scope->id = 0;
  scope->kernel = kernel;
  thisThread.kernel = scope;
  return orIsObserved(orActivityKernel) ? tellKernelBegin(scope, *stream, kernel) : orSuccess;
}

void orKernelEnd(orKernelScope* scope, bool failed) {
  if (orIsObserved(orActivityKernel)) {
    return tellAndEnd(scope, failed);
  }
  end(scope);
}
