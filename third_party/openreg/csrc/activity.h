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
    orActivityKind kind, int device, orStream_t stream, const orKernel& what, uint64_t correlation = 0);
void tellEnd(orActivityKind kind, int device, orStream_t stream, const orKernel& what, ActivityId id, bool failed);
void tellRange(orActivityKind kind, int device, orStream_t stream, const char* name, const void* data, size_t size);

// The innermost ObservedCall of the calling thread; 0: none.
uint64_t currentCall();

// Tells of a call of the host from here to the end of the scope. What starts meanwhile has its id as correlation. Not
// under a lock: subscribers run.
class ObservedCall {
 public:
  ObservedCall(orActivityKind kind, const char* name, int device, const Stream* stream = nullptr) {
    if (orIsObserved(kind)) {
      begin(kind, name, device, stream);
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
  uint64_t outer_;

  void begin(orActivityKind kind, const char* name, int device, const Stream* stream);
  void end();
};

// The faults at the points of kernels, copies, fills and allocations have changed.
void updateObservedKinds();

} // namespace openreg
