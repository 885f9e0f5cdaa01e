#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "openreg.h"
#include "stream.h"

// The queues of all streams, and the threads that run their work.
//
// Each stream has a counter of submitted items and one of completed items, and all waiting is based on them. A mark is
// a stream and a count: the mark is reached when the stream has completed so many items. To record an event is to set
// its mark. Streams that wait for an event, and threads of the host that wait, wait for a mark. One lock guards all
// queues. It is held for tens of nanoseconds, and never while work runs.
//
// If a kernel of the calling thread has the turn of the stream (orKernelBegin), work that the thread starts there runs
// at once, within that turn, in every mode. The comments below describe all other cases.

namespace openreg {

void startScheduler(orExecutionMode mode, uint64_t chaosSeed);

void setMode(orExecutionMode mode);

// Writes orInlineFlag. To be called when the mode has changed, or the number of captures, under the scheduler's lock.
void publishInlineFlag();

// Whether the mode is orExecutionChaos. The mode does not change while work is pending, except at exit.
bool isChaos();

// Runs `work` on this thread if nothing is pending on the stream and the mode allows it: always in orExecutionInline,
// with `mayRunInline` in orExecutionAsync, never in orExecutionChaos. Returns whether the work ran. Waits for kernels
// of other threads.
bool runNow(const std::shared_ptr<Stream>& stream, const Work& work, bool mayRunInline);

// Launches work, with the flags of orLaunch: runs it on this thread if runNow() would, otherwise queues it. Waits for
// room in a long queue, and for kernels of other threads.
orError_t launch(const std::shared_ptr<Stream>& stream, Work work, unsigned int flags);

// Completes work that was launched with Work::deferred. Returns false if no such work is pending.
bool complete(orCompletion_t completion, std::exception_ptr exception);

// Drops the failures with this exception that no call has returned yet. Returns how many there were.
int dropFailure(const std::exception_ptr& exception);

// Makes later work of the stream wait for the mark.
orError_t waitForEvent(const std::shared_ptr<Stream>& stream, const Mark& mark);

// Waits until a launch on the stream would not wait.
orError_t awaitLaunch(const std::shared_ptr<Stream>& stream);

// Waits for the stream, runs `work`, and returns when it has run. If the mode allows it, the work runs on this thread:
// the thread waits anyway, and this saves two changes of thread.
orError_t launchAndWait(const std::shared_ptr<Stream>& stream, const Work& work);

// Records the event: sets its mark to this point of the stream.
void record(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream);

// Records the event as reached, for work that runs on this thread.
void recordNow(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream);

// A copy of an event's mark, whether the device has reached the mark, and the time when it did.
struct EventState {
  Mark mark;
  bool reached;
  int64_t nanoseconds;
};
EventState stateOf(const Event& event);

// The name of the innermost kernel that this thread is in; NULL if there is none, or if it has no name.
const char* nameOfRunningKernel();

// Whether queued work of the stream is pending, or the event's mark is not reached. In orExecutionChaos each call lets
// one item run.
bool isPending(const std::shared_ptr<Stream>& stream);
bool isPending(const Event& event);

// Lets the device run what the mark waits for, and does not wait.
void letRun(const Mark& mark);

// Each waits for the mark, or for the work that was submitted to the stream or device before the call. Then it returns
// the first failure of the stream or device which no call has returned yet.
orError_t synchronize(const std::shared_ptr<Stream>& stream);
orError_t synchronize(const Mark& mark);
orError_t synchronizeDevice(int device);

// Waits for the work of all devices. Failures stay for the next call that waits. An unsafe call (graph.h).
orError_t waitForAllDevices();

} // namespace openreg
