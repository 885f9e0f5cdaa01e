#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/OpenRegException.h"
#include "simulator/dry/CollectiveCost.h"
#include "simulator/dry/Cost.h"

// Simulated time: an estimate of how long the work of a program in dry execution takes on the accelerator that the
// devices stand for.
//
//   - Each stream has a clock. A kernel takes the longest of three times, plus a latency: its floating-point operations
//     at the device's rate for their class and precision; the bytes of its operands at the bandwidth of the memory; and
//     the bytes of those operands that lie on the host or on another device, at the bandwidth of the link.
//   - The host has a clock too. Each kernel, copy and fill costs it the time of a launch, and starts no earlier than its
//     launch. Functions that wait for the device move the host's clock. Nothing else does: Python and the computations
//     of the host take no time.
//   - A collective of a simulated world takes the time of CollectiveCost.h on its stream. What no other work of the device
//     hides is exposed.
//   - A record of an event keeps the time of its stream. From then on orEventElapsedTime() knows simulated time only.
//
//   - A replay of a graph costs the host one launch. Its kernels have a latency each, and run one after the other. Those
//     that were computed in the capture, and not skipped, count by their bytes.
//
// Rule: the program's calls are observed (openreg_activity.h), in the order of the program. All threads of the program
// count as one. Collectives with other processes take no time.
namespace at::openreg {

// What the device reaches. Times are in seconds.
struct DeviceRates {
  using OfPrecisions = std::array<double, kPrecisions>;
  OfPrecisions peak_flops{};                            // per second, in matrix products
  std::array<double, kKernelClasses> flop_efficiency{}; // the share of the peak that kernels reach
  double memory_bandwidth = 0;                          // bytes per second that kernels reach
  double host_bandwidth = 0;                            // between the host's memory and the device
  double peer_bandwidth = 0;                            // between two devices, in copies
  double kernel_latency = 0;                            // of a kernel, besides its work
  double launch_time = 0;                               // of the host, for each kernel
  LinkRates links;                                      // of collectives
};

// Dry execution must have started. Lasts until the process ends.
OPENREG_API void start_clock(const DeviceRates& rates);

// The sums from the start of the clock to now, in seconds.
struct KernelTotals {
  uint64_t count = 0;
  double seconds = 0;
  double flops = 0;
  double bytes = 0;
};
struct StreamTotals {
  int device;
  double busy = 0;
  double idle_for_launch = 0; // the host launched the next work too late
  double idle_for_work = 0;   // the next work had to wait for other streams
};
struct ClockTotals {
  double now = 0;                                        // when the host and all streams are done with all work so far
  double compute = 0, memory = 0, link = 0, latency = 0; // what bounds the kernels
  double communication = 0;                              // collectives; the sum of the five is that of `busy`
  double exposed_communication = 0;                      // while the device did nothing else
  double flops = 0;
  double peak_seconds = 0; // of the same operations at the peak of their precision
  std::map<std::string, KernelTotals> kernels;
  std::map<size_t, StreamTotals> streams; // in the order of their first work
};
OPENREG_API ClockTotals clock_totals();

// While an object of this class lives, the calling thread's kernels count as one: they have one launch and one latency.
class OneLaunch {
 public:
  OneLaunch();
  ~OneLaunch();
  OneLaunch(const OneLaunch&) = delete;
  OneLaunch& operator=(const OneLaunch&) = delete;
};

// While an object of this class lives, the calling thread's next kernel has this cost.
class CostOfCall {
 public:
  CostOfCall(const CostFormula& formula, ArrayRef<c10::IValue> arguments);
  ~CostOfCall();
  CostOfCall(const CostOfCall&) = delete;
  CostOfCall& operator=(const CostOfCall&) = delete;

 private:
  CallCost outer_;
};

// The cost that the calling thread's next kernel has.
CallCost cost_of_call();

} // namespace at::openreg
