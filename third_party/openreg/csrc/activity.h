#pragma once

#include <cstdint>

#include "openreg.h"
#include "openreg_graph_activity.h"

// Tells the subscribers of openreg_activity.h what the device does. An *activity* is, for example, a kernel, a copy, an
// allocation, or a call of the host (orActivityKind); it has a begin and an end, or it is a point.
namespace openreg {

struct Stream;

// A kind that no subscriber can ask for.
constexpr orActivityKind kNoActivity{};

// Identifies one activity from its begin to its end. id 0: no subscriber was told of the begin.
struct ActivityId {
  uint64_t id = 0;
  uint64_t correlation = 0;
};

// Tell the subscribers. The caller asks orIsObserved() first. tellEnd() takes the result of tellBegin().
ActivityId tellBegin(
    orActivityKind kind,
    int device,
    orStream_t stream,
    const orKernel& what,
    uint64_t correlation = 0,
    const void* object = nullptr);
void tellEnd(
    orActivityKind kind,
    int device,
    orStream_t stream,
    const orKernel& what,
    ActivityId id,
    bool failed,
    const void* object = nullptr);
void tellRange(orActivityKind kind, int device, orStream_t stream, const char* name, const void* data, size_t size);

// Tells the subscribers that work is about to be queued. Returns the error that fail() has recorded if a subscriber
// stops the work, else orSuccess.
orError_t tellLaunch(int device, orStream_t stream, const orKernel& what);
inline orError_t checkLaunch(int device, orStream_t stream, const orKernel& what) {
  return orIsObserved(orActivityLaunch) ? tellLaunch(device, stream, what) : orSuccess;
}

// Tells the subscribers that a capture has made a node of the graph with this number (Graph::number).
// Returns the error of takeStop().
orError_t tellNode(int device, orStream_t stream, const orKernel& what, uintptr_t graph, size_t number);

// To be called after a begin or a launch was told. Returns the error that fail() has recorded if a subscriber stopped
// the work, else orSuccess.
orError_t takeStop();

// Tells the subscribers that the function `name` makes `object` (orActivityBegin) or destroys it (orActivityEnd).
void tellHandle(orActivityPhase phase, const char* name, const void* object, size_t size);
inline void noteHandle(orActivityPhase phase, const char* name, const void* object, size_t size = 0) {
  if (orIsObserved(orActivityHandle)) {
    tellHandle(phase, name, object, size);
  }
}

// The id of the calling thread's innermost ObservedCall; 0: there is none.
uint64_t currentCall();

// Tells the subscribers of a call of the host, which begins here and ends with the scope. Activities that start
// meanwhile have its id as correlation. Do not make an object of this class while a lock is held: it calls the
// subscribers.
class ObservedCall {
 public:
  // `object`: orActivity::object.
  ObservedCall(
      orActivityKind kind, const char* name, int device, const Stream* stream = nullptr, const void* object = nullptr) {
    if (orIsObserved(kind)) {
      begin(kind, name, device, stream, object);
    }
  }
  ~ObservedCall() {
    if (__builtin_expect(id_.id != 0, 0)) {
      end();
    }
  }
  ObservedCall(const ObservedCall&) = delete;
  ObservedCall& operator=(const ObservedCall&) = delete;

 private:
  ActivityId id_;
  orActivityKind kind_;
  const char* name_;
  int device_;
  orStream_t stream_;
  const void* object_;
  uint64_t outer_;

  void begin(orActivityKind kind, const char* name, int device, const Stream* stream, const void* object);
  void end();
};

// Computes orObservedKinds anew. To be called when Interceptor::activityKinds() has changed.
void updateObservedKinds();

} // namespace openreg
