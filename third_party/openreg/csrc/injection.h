#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "openreg_activity.h"
#include "openreg_faults.h"

// Faults that a test has asked for: openreg_faults.h.
namespace openreg {

// The points at which a fault may wait.
extern std::atomic<unsigned int> faultPoints;

// The kinds of activities (orActivityKind) that must pass the slow way, because a fault may wait for them.
unsigned int faultKinds();

// What becomes of a call that passes a point. `error` was recorded with fail(), and its sentence is `message`.
struct Outcome {
  orError_t error = orSuccess;
  std::string message;
  double slowdown = 1;
  bool drops = false;
  bool flips = false;
  uint64_t seed = 0; // of the flipped bit
};

// Sleeps if a delay waits there.
Outcome meetFaults(orFaultPoint point, int device, size_t size);

// For calls that fail at once or not at all.
inline orError_t checkFaults(orFaultPoint point, int device, size_t size = 0) {
  return (faultPoints.load(std::memory_order_relaxed) & point) != 0 ? meetFaults(point, device, size).error : orSuccess;
}

// Whether the device, or the process, is beyond repair. For calls that wait.
orError_t checkLost(int device);

// A kernel, copy or fill under the faults that it has met, from its begin to its end.
class FaultyWork {
 public:
  // nullopt: it met none. Sleeps, if it met a delay.
  static std::optional<FaultyWork> meet(orActivityKind kind, int device, const orKernel& what);

  orError_t error() const {
    return outcome_.error;
  }

  // At the end of the work: throws InjectedFailure, makes it slow, or flips the bit.
  void finish() const;

 private:
  Outcome outcome_;
  int64_t begin_ = 0;
  orOperand written_{}; // by a copy or a fill
};

// How the failure of a kernel, copy or fill is kept until it is reported.
struct InjectedFailure : std::exception {
  InjectedFailure(orError_t code, std::string message) : code(code), message(std::move(message)) {}
  const char* what() const noexcept override {
    return message.c_str();
  }
  orError_t code;
  std::string message;
};

} // namespace openreg
