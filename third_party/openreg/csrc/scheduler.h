#pragma once

#include <cstdint>
#include <exception>
#include <memory>

#include "openreg.h"
#include "stream.h"

// The queues of all streams, and the threads that empty them.
//
// A stream is a counter of submitted and one of completed items, and everything else follows from them: an event's
// record is a mark (a stream and a count), a wait for an event is a wait for a mark, and so is a host thread's wait.
// One lock guards all queues: it is held for tens of nanoseconds, never while work runs.
//
// Work that this thread starts on a stream whose turn one of its own kernels has (orKernelBegin) runs at once, within that
// turn, whatever the mode: the functions below say only what happens otherwise.

namespace openreg {

void startScheduler(orExecutionMode mode, uint64_t chaosSeed);

void setMode(orExecutionMode mode);

// True in orExecutionChaos. Does not change while work is pending.
bool isChaos();

// Runs `work` on this thread if nothing is pending on the stream and the mode allows it: orExecutionInline always,
// orExecutionAsync if `mayRunInline`, orExecutionChaos never. Returns whether it ran. Waits for kernels of other threads.
bool runNow(const std::shared_ptr<Stream>& stream, const Work& work, bool mayRunInline);

// The usual way to launch, with the flags of orLaunch: runs work in the launching call where runNow() would, otherwise
// queues it. Waits for room in a queue that is very long, and for kernels of other threads.
orError_t launch(const std::shared_ptr<Stream>& stream, Work work, unsigned int flags);

// Completes work that was launched with `deferred`. False: no such work is pending.
bool complete(orCompletion_t completion, std::exception_ptr exception);

// Later work of the stream waits for the mark.
orError_t waitForEvent(const std::shared_ptr<Stream>& stream, const Mark& mark);

// Waits until a launch on the stream would not wait.
orError_t awaitLaunch(const std::shared_ptr<Stream>& stream);

// Waits for the stream, runs `work` on this thread where the mode allows it, and returns when it has run: the thread
// that waits anyway saves the two changes of thread.
orError_t launchAndWait(const std::shared_ptr<Stream>& stream, const Work& work);

// Moves an event's mark to this point of the stream.
void record(const std::shared_ptr<Event>& event, const std::shared_ptr<Stream>& stream);

// A copy of the event's mark, and the time if it has been reached.
struct EventState {
  Mark mark;
  bool reached;
  int64_t nanoseconds;
};
EventState stateOf(const Event& event);

// Of the kernel that this thread is in, the innermost one; NULL if there is none, or it has no name.
const char* nameOfRunningKernel();

// Whether queued work of the stream is pending.
bool isPending(const Stream& stream);

// Each waits for what was submitted before the call, and returns the first unreported failure of its work.
orError_t synchronize(const std::shared_ptr<Stream>& stream);
orError_t synchronize(const Mark& mark);
orError_t synchronizeDevice(int device);

// Waits for the work of all devices; failures stay unreported.
orError_t waitForAllDevices();

} // namespace openreg
