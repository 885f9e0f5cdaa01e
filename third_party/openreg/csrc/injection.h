#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "openreg_activity.h"
#include "openreg_faults.h"

// The faults that a test has injected (openreg_faults.h).
namespace openreg {

// The orFaultPoint values at which a call must look for faults, joined by |. All, if a fault can make a device lost.
extern std::atomic<unsigned int> faultPoints;

// The kinds of activities (orActivityKind) that have a point in `faultPoints`. For these kinds, orIsObserved() returns
// true even without a subscriber. So the code that looks for faults runs.
unsigned int faultKinds();

// What the faults do to a call that passes a point. `error` was recorded with fail(), and `message` is its sentence.
struct Outcome {
  orError_t error = orSuccess;
  std::string message;
  double slowdown = 1;
  bool drops = false;
  bool flips = false;
  uint64_t seed = 0; // chooses the bit that is flipped
};

// Applies the faults that are set at this point. Sleeps if one of them is a delay.
Outcome meetFaults(orFaultPoint point, int device, size_t size);

// The same for calls that can only fail or succeed. Returns the error.
inline orError_t checkFaults(orFaultPoint point, int device, size_t size = 0) {
  return (faultPoints.load(std::memory_order_relaxed) & point) != 0 ? meetFaults(point, device, size).error : orSuccess;
}

// For calls without a point of their own: those that wait, and orMemGetInfo. Returns an error if a fault made all later
// calls fail, of this device or of the whole process (orFaultDuration).
orError_t checkLost(int device);

// A kernel, copy or fill at whose point faults are set, from its begin to its end.
class FaultyWork {
 public:
  // Returns nullopt if no fault is set at the point of this work. Sleeps if a fault delays the work.
  static std::optional<FaultyWork> meet(orActivityKind kind, int device, const orKernel& what);

  orError_t error() const {
    return outcome_.error;
  }

  // To be called at the end of the work. If the faults ask for it: throws InjectedFailure, sleeps to make the work
  // slow, flips a bit.
  void finish() const;

 private:
  Outcome outcome_;
  int64_t begin_ = 0;
  orOperand written_{}; // the operand that a copy or fill writes
};

// The failure of a kernel, copy or fill, until a call reports it.
struct InjectedFailure : std::exception {
  InjectedFailure(orError_t code, std::string message) : code(code), message(std::move(message)) {}
  const char* what() const noexcept override {
    return message.c_str();
  }
  orError_t code;
  std::string message;
};

} // namespace openreg
