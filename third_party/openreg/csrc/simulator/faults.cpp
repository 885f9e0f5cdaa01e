#include <openreg_faults.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "activity.h"
#include "hooks.h"
#include "runtime.h"
#include "scheduler_state.h"

struct orInjectedFault {
  orFault what;
  std::string text;
  uint64_t seen = 0;
  uint64_t fired = 0;
  int lost = -1; // the device for which every call fails from now on
  bool removed = false;
};

namespace openreg {

// The faults that a test has injected (openreg_faults.h). They act through the interceptor of hooks.h.
namespace {

// The core knows the points of its own calls. The others are only in this file: allocators and libraries above call
// orRequestAllocation() and orRequestMessage().
static_assert(
    kAtSegment == int{orFaultAtSegment} && kAtHostAllocation == int{orFaultAtHostAllocation} &&
    kAtKernel == int{orFaultAtKernel} && kAtCopy == int{orFaultAtCopy} && kAtFill == int{orFaultAtFill} &&
    kAtStream == int{orFaultAtStream} && kAtEvent == int{orFaultAtEvent} && kAtIpc == int{orFaultAtIpc} &&
    kAtStart == int{orFaultAtStart} && kAtLaunch == int{orFaultAtLaunch} && kAtAnyPoint == orFaultAnywhere);

// Guards the faults. A thread that holds it takes no other lock than that of the subscribers (activity.cpp). A forked
// child never takes it, because the child has no device that could fail.
std::mutex mutex;
std::vector<std::unique_ptr<orInjectedFault>> faults;

constexpr int kEveryDevice = -2; // a value of orInjectedFault::lost

int64_t now() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

// SplitMix64: a random number that depends on the arguments only, so a call gets the same number in every run.
uint64_t randomOf(uint64_t seed, uint64_t number) {
  uint64_t value = seed + number * 0x9E3779B97F4A7C15u;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

bool matches(const orFault& fault, unsigned int point, int device, size_t size) {
  return (fault.points & point) != 0 && (fault.device < 0 || fault.device == device) && size >= fault.minSize;
}

bool isDue(orInjectedFault& fault) {
  const uint64_t number = ++fault.seen;
  if (number < fault.what.first || number > fault.what.last) {
    return false;
  }
  constexpr double kRange = 0x1p64;
  return static_cast<double>(randomOf(fault.what.seed, number)) < fault.what.probability * kRange;
}

// To be called with the lock held.
void updatePoints() {
  unsigned int points = 0;
  for (const auto& fault : faults) {
    if (!fault->removed) {
      points |= fault->what.duration == orFaultOnce ? fault->what.points : orFaultAnywhere;
    } else if (fault->lost == kEveryDevice) {
      points = orFaultAnywhere;
    }
  }
  interceptedPoints = points;
}

// What the faults do to a call that passes a point. `error` was recorded with fail(), and `message` is its sentence.
struct Outcome {
  orError_t error = orSuccess;
  std::string message;
  double slowdown = 1;
  bool drops = false;
  bool flips = false;
  uint64_t seed = 0; // chooses the bit that is flipped
};

Outcome failed(const orInjectedFault& fault) {
  Outcome outcome;
  outcome.error = fault.what.error;
  outcome.message = std::string(orGetErrorString(fault.what.error)) + " (injected by " + fault.text + ")";
  return outcome;
}

bool isLost(const orInjectedFault& fault, int device) {
  return fault.lost == kEveryDevice || (fault.lost >= 0 && fault.lost == device);
}

orError_t recorded(const Outcome& outcome) {
  return outcome.error == orSuccess ? orSuccess : failVerbatim(outcome.error, outcome.message.c_str());
}

// Applies the faults that are set at this point. Sleeps if one of them is a delay.
Outcome meetFaults(unsigned int point, int device, size_t size) {
  if (thisThread.tells || isInBadFork()) {
    return {};
  }
  Outcome outcome;
  double delay = 0;
  {
    const std::lock_guard lock(mutex);
    for (const auto& fault : faults) {
      if (isLost(*fault, device)) {
        outcome = failed(*fault);
        break;
      }
      if (fault->removed || !matches(fault->what, point, device, size) || !isDue(*fault)) {
        continue;
      }
      ++fault->fired;
      if (fault->what.action == orFaultFails) {
        if (outcome.error == orSuccess) { // the first fault that is due gives the error, the others count the call
          outcome = failed(*fault);
        }
        if (fault->what.duration != orFaultOnce) {
          fault->lost = fault->what.duration == orFaultForTheProcess ? kEveryDevice : device;
        }
      } else if (fault->what.action == orFaultDelays) {
        delay += fault->what.amount;
      } else if (fault->what.action == orFaultSlows) {
        outcome.slowdown *= fault->what.amount;
      } else if (fault->what.action == orFaultDrops) {
        outcome.drops = true;
      } else if (fault->what.action == orFaultKills) {
        raise(SIGKILL);
      } else {
        outcome.flips = true;
        outcome.seed = randomOf(~fault->what.seed, fault->seen);
      }
    }
  }
  if (delay > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(delay));
  }
  recorded(outcome);
  return outcome;
}

// A kernel, copy or fill at whose point faults are set.
class FaultyWork final : public InterceptedWork {
 public:
  FaultyWork(orActivityKind kind, int device, const orKernel& what) {
    if (kind != orActivityKernel) {
      const auto visit = [](const orOperand* operand, void* context) {
        if ((operand->access & orAccessWrite) != 0) {
          *static_cast<orOperand*>(context) = *operand;
        }
      };
      what.operands(what.data, visit, &written_);
    }
    const auto point = kind == orActivityKernel ? orFaultAtKernel
                       : kind == orActivityCopy ? orFaultAtCopy
                                                : orFaultAtFill;
    outcome_ = meetFaults(point, device, written_.itemSize);
    begin_ = now();
  }

  orError_t error() const override {
    return outcome_.error;
  }

  // If the faults ask for it: throws WorkError, sleeps to make the work slow, flips a bit.
  void finish() override {
    if (outcome_.error != orSuccess) {
      throw WorkError(outcome_.error, outcome_.message);
    }
    if (outcome_.slowdown > 1) {
      const double more = static_cast<double>(now() - begin_) * (outcome_.slowdown - 1);
      std::this_thread::sleep_for(std::chrono::duration<double, std::nano>(more));
    }
    if (outcome_.flips && written_.itemSize > 0) {
      const uint64_t bit = outcome_.seed % (written_.itemSize * 8);
      static_cast<unsigned char*>(orGetKernelPointer(written_.data))[bit / 8] ^= 1u << bit % 8;
    }
  }

 private:
  Outcome outcome_;
  int64_t begin_ = 0;
  orOperand written_{}; // the operand that a copy or fill writes
};

class Faults final : public Interceptor {
 public:
  orError_t call(Point point, int device, size_t size) override {
    return meetFaults(point, device, size).error;
  }

  std::unique_ptr<InterceptedWork> begin(orActivityKind kind, int device, const orKernel& what) override {
    return std::make_unique<FaultyWork>(kind, device, what);
  }

  // Returns an error if a fault made all later calls fail, of this device or of the whole process (orFaultDuration).
  orError_t checkDevice(int device) override {
    if (isInBadFork()) {
      return orSuccess;
    }
    const std::lock_guard lock(mutex);
    for (const auto& fault : faults) {
      if (isLost(*fault, device)) {
        return recorded(failed(*fault));
      }
    }
    return orSuccess;
  }

  unsigned int activityKinds() override {
    constexpr std::pair<orFaultPoint, orActivityKind> kKinds[] = {
        {orFaultAtKernel, orActivityKernel},
        {orFaultAtLaunch, orActivityKernel},
        {orFaultAtCopy, orActivityCopy},
        {orFaultAtFill, orActivityFill},
        {orFaultAtAllocation, orActivityAllocation}};
    unsigned int kinds = 0;
    for (const auto& [point, kind] : kKinds) {
      kinds |= (interceptedPoints & point) != 0 ? kind : 0;
    }
    return kinds;
  }
};

const bool faultsAreRegistered = (interceptor = new Faults(), true); // lives until the process ends

} // namespace
} // namespace openreg

using namespace openreg;

orError_t orFaultInject(orInjectedFault_t* fault, const orFault* what) {
  enter(__func__);
  if (isInBadFork()) {
    return start(); // which returns the error of a forked child
  }
  if (fault == nullptr || what == nullptr) {
    return fail(orErrorInvalidValue, "%s is NULL", fault == nullptr ? "fault" : "what");
  }
  if (what->points == 0 || (what->points & ~orFaultAnywhere) != 0) {
    return fail(
        orErrorInvalidValue, "points is %u; join values of orFaultPoint, or pass orFaultAnywhere", what->points);
  }
  if (what->first < 1 || what->last < what->first) {
    return fail(
        orErrorInvalidValue,
        "first is %llu and last is %llu; calls are counted from 1",
        static_cast<unsigned long long>(what->first),
        static_cast<unsigned long long>(what->last));
  }
  if (!(what->probability > 0 && what->probability <= 1)) {
    return fail(orErrorInvalidValue, "probability is %g; pass a number above 0, at most 1", what->probability);
  }
  if (what->action < orFaultFails || what->action > orFaultKills) {
    return fail(orErrorInvalidValue, "action is %d, which is no orFaultAction (0 to 5)", what->action);
  }
  const double least = what->action == orFaultDelays ? 0 : what->action == orFaultSlows ? 1 : -INFINITY;
  if (!(what->amount >= least) || !std::isfinite(what->amount)) {
    return fail(orErrorInvalidValue, "amount is %g; pass a number of at least %g", what->amount, least);
  }
  if (what->action == orFaultFails && what->error == orSuccess) {
    return fail(orErrorInvalidValue, "error is orSuccess; pass the error that the call is to return");
  }
  if (what->duration < orFaultOnce || what->duration > orFaultForTheProcess) {
    return fail(orErrorInvalidValue, "duration is %d, which is no orFaultDuration (0 to 2)", what->duration);
  }
  auto added = std::make_unique<orInjectedFault>();
  added->what = *what;
  added->text = what->text != nullptr ? what->text : "a fault";
  const std::lock_guard lock(mutex);
  *fault = added.get();
  faults.push_back(std::move(added));
  updatePoints();
  updateObservedKinds();
  return orSuccess;
}

namespace {

// To be called with the lock held. Returns null after a failure, which fail() has recorded.
orInjectedFault* findFault(orInjectedFault_t fault) {
  for (const auto& known : faults) {
    if (known.get() == fault && !known->removed) {
      return known.get();
    }
  }
  fail(orErrorInvalidResourceHandle, "fault %p does not exist; it was removed, or is no fault", (void*)fault);
  return nullptr;
}

} // namespace

orError_t orFaultCount(orInjectedFault_t fault, uint64_t* seen, uint64_t* fired) {
  enter(__func__);
  if (isInBadFork()) {
    return start(); // which returns the error of a forked child
  }
  const std::lock_guard lock(mutex);
  const orInjectedFault* const found = findFault(fault);
  if (found == nullptr) {
    return orErrorInvalidResourceHandle;
  }
  if (seen != nullptr) {
    *seen = found->seen;
  }
  if (fired != nullptr) {
    *fired = found->fired;
  }
  return orSuccess;
}

orError_t orFaultRemove(orInjectedFault_t fault) {
  enter(__func__);
  if (isInBadFork()) {
    return orSuccess;
  }
  const std::lock_guard lock(mutex);
  orInjectedFault* const found = findFault(fault);
  if (found == nullptr) {
    return orErrorInvalidResourceHandle;
  }
  found->removed = true;
  std::erase_if(faults, [](const auto& known) { return known->removed && known->lost != kEveryDevice; });
  updatePoints();
  updateObservedKinds();
  return orSuccess;
}

orError_t orRequestAllocation(int device, size_t size) {
  enter(__func__);
  return (interceptedPoints.load(std::memory_order_relaxed) & orFaultAtAllocation) != 0
             ? meetFaults(orFaultAtAllocation, device, size).error
             : orSuccess;
}

orError_t orRequestStream(int device) {
  enter(__func__);
  return checkCall(kAtStream, device);
}

orError_t orRequestMessage(int device, size_t size, bool* dropped) {
  enter(__func__);
  if ((interceptedPoints.load(std::memory_order_relaxed) & orFaultAtMessage) == 0) {
    return orSuccess;
  }
  const Outcome outcome = meetFaults(orFaultAtMessage, device, size);
  *dropped = outcome.drops;
  return outcome.error;
}
