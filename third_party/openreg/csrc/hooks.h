#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "openreg_activity.h"

// What a part outside of this folder may add to calls and to queued work. The folder csrc/simulator is such a part, and
// may be absent. It registers its objects when the library is loaded. Otherwise the pointers here stay null, and a hook
// costs one predictable branch.
namespace openreg {

// ---- Calls and work that are made to fail, or are changed ----

// The places that call the interceptor. The values are bits of interceptedPoints.
enum Point : unsigned int {
  kAtSegment = 2,        // orMalloc
  kAtHostAllocation = 4, // orMallocHost
  kAtKernel = 8,         // a kernel begins
  kAtCopy = 16,          // a copy begins to run
  kAtFill = 32,          // a fill begins to run
  kAtStream = 64,        // a stream is made
  kAtEvent = 128,        // an event is made
  kAtIpc = 256,          // memory or an event of another process is opened
  kAtStart = 512,        // the devices start, or are counted before they start
  kAtLaunch = 2048,      // a kernel is launched or begins
  kAtAnyPoint = 0xFFFu,
};

// A kernel, copy or fill, from its begin to its end.
class InterceptedWork {
 public:
  virtual ~InterceptedWork() = default;
  // An error, recorded with fail(), with which a kernel must not begin. A copy or fill runs in any case.
  virtual orError_t error() const = 0;
  // To be called when the work is done. May change what the work wrote, and may throw WorkError.
  virtual void finish() = 0;
};

class Interceptor {
 public:
  virtual ~Interceptor() = default;
  // A call passes a point. An error, recorded with fail(), is the result of the call.
  virtual orError_t call(Point point, int device, size_t size) = 0;
  // Work begins. Returns null if nothing is to be done at its end.
  virtual std::unique_ptr<InterceptedWork> begin(orActivityKind kind, int device, const orKernel& what) = 0;
  // For calls without a point of their own: those that wait, and orMemGetInfo.
  virtual orError_t checkDevice(int device) = 0;
  // The kinds of activities (orActivityKind) whose begin must be looked at, even without a subscriber.
  virtual unsigned int activityKinds() = 0;
};
inline Interceptor* interceptor = nullptr;

// The Point values at which the interceptor must be called, joined by |.
inline std::atomic<unsigned int> interceptedPoints{0};

inline orError_t checkCall(Point point, int device, size_t size = 0) {
  return (interceptedPoints.load(std::memory_order_relaxed) & point) != 0 ? interceptor->call(point, device, size)
                                                                          : orSuccess;
}

inline std::unique_ptr<InterceptedWork> intercept(orActivityKind kind, int device, const orKernel& what) {
  const Point point = kind == orActivityKernel ? kAtKernel : kind == orActivityCopy ? kAtCopy : kAtFill;
  return (interceptedPoints.load(std::memory_order_relaxed) & point) != 0 ? interceptor->begin(kind, device, what)
                                                                          : nullptr;
}

inline orError_t checkDevice(int device) {
  return interceptedPoints.load(std::memory_order_relaxed) != 0 ? interceptor->checkDevice(device) : orSuccess;
}

// A failure of a kernel, copy or fill with an error code of its own, until a call reports it.
struct WorkError : std::exception {
  WorkError(orError_t code, std::string message) : code(code), message(std::move(message)) {}
  const char* what() const noexcept override {
    return message.c_str();
  }
  orError_t code;
  std::string message;
};

// ---- The order of queued work in orExecutionChaos ----

struct Stream;

// A stream whose next item is held (hold.cpp) and may run now.
struct HeldItem {
  Stream* stream;
  bool isNeeded;   // somebody waits for it, directly or through events
  bool isHostCopy; // a copy from or to the host, or between two devices
  uint64_t number; // items that were queued later have greater numbers
};

class Schedule {
 public:
  virtual ~Schedule() = default;
  // The devices are about to start. Returns what is wrong with a setting of the schedule, or an empty text.
  virtual std::string configure() = 0;
  virtual void seed(uint64_t seed) = 0;
  // Which item runs next, while somebody waits; at least one is needed. To be called with the scheduler's lock.
  virtual size_t choose(const std::vector<HeldItem>& items) = 0;
  // Work is queued. Returns a number for done(), which is called when the work is done; 0: done() need not be called.
  virtual uint64_t queued(const orKernel& what) = 0;
  virtual void done(uint64_t number) = 0;
  // An item is held, and none was before. To be called with the scheduler's lock.
  virtual void holding() = 0;
};
// Not null if the mode is orExecutionChaos.
inline Schedule* schedule = nullptr;

class Locked;

// The order of the calls that queue something, and of the items that run: written to a file, or followed from one. The
// functions are called with the scheduler's lock.
class Order {
 public:
  virtual ~Order() = default;
  // The calling thread is about to queue something on the stream. A replay waits until it is this thread's turn.
  virtual void call(Locked& locked, const std::shared_ptr<Stream>& stream, const char* what, const char* name) = 0;
  // The stream's first item begins, or its completion shows.
  virtual void advance(Locked& locked, const Stream& stream, const char* what, const char* name) = 0;

  // Only a replay overrides the other functions. Whether the schedule is that of a file:
  virtual bool isReplay() const {
    return false;
  }
  // Whether the stream's first item is the next one of the file.
  virtual bool isNext(const Stream&) const {
    return false;
  }
  // Whether a thread waits for its turn.
  virtual bool holdsCalls() const {
    return false;
  }
  // No thread of the process goes on. A replay that has waited for long says so, and ends the process.
  virtual void stuck() {}
  // The process exits. A replay that is not at its end says so, and ends the process.
  virtual void end() {}
};
// Null, unless the order is written or followed.
inline Order* order = nullptr;

inline constexpr const char* kNoChaos =
    "this build has no mode chaos: the folder third_party/openreg/csrc/simulator, which contains it, was absent. Use "
    "the mode async or inline";

inline void forget(uint64_t scheduled) {
  if (scheduled != 0) {
    schedule->done(scheduled);
  }
}

// ---- Memory ----

// Whether the host must be able to back the memory that orMalloc hands out. False: most of it is never touched.
inline std::atomic<bool> hostBacksMemory{true};

// ---- Time ----

// Returns the time of an event's last record, in seconds; null: the events' times are those of the real clock.
inline std::atomic<double (*)(orEvent_t)> simulatedEventTime{nullptr};

} // namespace openreg
