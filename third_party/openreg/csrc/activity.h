#pragma once

#include <cstdint>

#include "openreg.h"
#include "openreg_activity.h"

namespace openreg {

struct Stream;

// Nobody subscribes to it.
constexpr orActivityKind kNoActivity{};

// Names one activity from its begin to its end. id 0: nobody was told of the begin.
struct ActivityId {
  uint64_t id = 0;
  uint64_t correlation = 0;
};

// Tell the subscribers. To be asked before: orIsObserved(). tellEnd() takes what tellBegin() returned.
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

// Work is about to be queued. An error if a subscriber stops it, which fail() has recorded.
orError_t tellLaunch(int device, orStream_t stream, const orKernel& what);
inline orError_t checkLaunch(int device, orStream_t stream, const orKernel& what) {
  return orIsObserved(orActivityLaunch) ? tellLaunch(device, stream, what) : orSuccess;
}

// What a subscriber made of the begin of this thread's kernel: orSuccess, or the error that fail() has recorded.
orError_t takeStop();

// `object` is made (orActivityBegin) or goes (orActivityEnd), by the function `name`.
void tellHandle(orActivityPhase phase, const char* name, const void* object, size_t size);
inline void noteHandle(orActivityPhase phase, const char* name, const void* object, size_t size = 0) {
  if (orIsObserved(orActivityHandle)) {
    tellHandle(phase, name, object, size);
  }
}

// The innermost ObservedCall of the calling thread; 0: none.
uint64_t currentCall();

// Tells of a call of the host from here to the end of the scope. What starts meanwhile has its id as correlation. Not
// under a lock: subscribers run.
class ObservedCall {
 public:
  // `event`: that the call is about.
  ObservedCall(
      orActivityKind kind, const char* name, int device, const Stream* stream = nullptr, orEvent_t event = nullptr) {
    if (orIsObserved(kind)) {
      begin(kind, name, device, stream, event);
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
  orEvent_t event_;
  uint64_t outer_;

  void begin(orActivityKind kind, const char* name, int device, const Stream* stream, orEvent_t event);
  void end();
};

// The faults at the points of kernels, copies, fills and allocations have changed.
void updateObservedKinds();

} // namespace openreg
