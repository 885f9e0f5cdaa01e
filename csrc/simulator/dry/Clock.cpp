#include "simulator/dry/Clock.h"

#include <openreg_activity.h>
#include <openreg_dry.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/OpenRegMutex.h"
#include "simulator/ThreadOwned.h"
#include "simulator/dry/CapturedSkip.h"
#include "simulator/dry/Contents.h"

namespace at::openreg {
namespace {

// ---- The bytes of a kernel

enum class MemoryPlace { device, host, peer };

struct OperandSize {
  const void* data;
  double bytes;
  unsigned access;
  MemoryPlace place;

  double moved() const { // an operand that is read and written moves twice
    return access == (orAccessRead | orAccessWrite) ? 2 * bytes : bytes;
  }
};

struct ThreadWork {
  CallCost cost;
  uint64_t kernel = 0; // the id of the running kernel; 0: none
  bool is_one_launch = false;
  bool was_launched = false; // while is_one_launch, or in a replay
  bool is_replay = false;    // of a graph
  std::vector<OperandSize> operands;
};
thread_local constinit c10::openreg::ThreadOwned<ThreadWork> thread_work;

MemoryPlace place_of(const void* data, int device) {
  orPointerAttributes attributes;
  if (orPointerGetAttributes(&attributes, data) != orSuccess || attributes.type != orMemoryTypeDevice) {
    return MemoryPlace::host;
  }
  return attributes.device == device ? MemoryPlace::device : MemoryPlace::peer;
}

// Adds the operands that the activity names to those of the thread. A kernel names its results when it ends.
void collect(const orActivity& activity) {
  std::pair<std::vector<OperandSize>&, int> context{thread_work->operands, activity.device};
  const auto add = [](const orOperand* operand, void* data) {
    auto& [operands, device] = *static_cast<decltype(context)*>(data);
    auto bytes = static_cast<double>(operand->itemSize);
    for (int i = 0; i < operand->dims; ++i) {
      bytes *= operand->strides[i] == 0 ? 1 : static_cast<double>(operand->sizes[i]); // an expanded dimension
    }
    const auto known = std::find_if(
        operands.begin(), operands.end(), [&](const OperandSize& each) { return each.data == operand->data; });
    if (known != operands.end()) {
      known->bytes = std::max(known->bytes, bytes);
      known->access |= operand->access;
    } else if (operand->data) {
      operands.push_back({operand->data, bytes, operand->access, place_of(operand->data, device)});
    }
  };
  orActivityVisitOperands(&activity, add, &context);
}

// ---- The clocks

struct StreamClock {
  size_t number;
  int device;
  double end = 0;   // of all work so far
  double ready = 0; // of what later work waits for on other streams
  bool has_worked = false;
  StreamTotals totals;
};

struct TimeSpan {
  double begin, end;
};
using TimeSpans = std::vector<TimeSpan>;

// When a device worked.
struct BusyTime {
  TimeSpans collectives, others;
};

// Sorts the intervals, and joins those that overlap.
void join(TimeSpans& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const TimeSpan& a, const TimeSpan& b) { return a.begin < b.begin; });
  size_t last = 0;
  for (size_t i = 1; i < intervals.size(); ++i) {
    if (intervals[i].begin <= intervals[last].end) {
      intervals[last].end = std::max(intervals[last].end, intervals[i].end);
    } else {
      intervals[++last] = intervals[i];
    }
  }
  intervals.resize(std::min(intervals.size(), last + 1));
}

double length(const TimeSpans& intervals) {
  double sum = 0;
  for (const TimeSpan& each : intervals) {
    sum += each.end - each.begin;
  }
  return sum;
}

// How long collectives ran while nothing else did: the length of both together, less that of the others.
double exposed(const BusyTime& work) {
  TimeSpans others = work.others, all = work.others;
  all.insert(all.end(), work.collectives.begin(), work.collectives.end());
  join(others);
  join(all);
  return length(all) - length(others);
}

// Takes the part before `time` out of the intervals.
TimeSpans cut(TimeSpans& intervals, double time) {
  TimeSpans before, after;
  for (const TimeSpan& each : intervals) {
    if (each.begin < time) {
      before.push_back({each.begin, std::min(each.end, time)});
    }
    if (each.end > time) {
      after.push_back({std::max(each.begin, time), each.end});
    }
  }
  intervals = std::move(after);
  return before;
}

struct SimulatedClocks {
  DeviceRates rates;
  double host = 0;
  std::map<orStream_t, StreamClock> streams;
  std::map<int, BusyTime> devices; // after the time until which ClockTotals::exposed_communication counts
  std::map<const void*, double> events;
  ClockTotals totals;

  StreamClock& stream(const orActivity& activity) {
    const StreamClock added{streams.size(), activity.device, 0, 0, false, {activity.device}};
    return streams.try_emplace(activity.stream, added).first->second;
  }

  double end_of(int device) const {
    double end = 0;
    for (const auto& [handle, stream] : streams) {
      end = stream.device == device ? std::max(end, stream.end) : end;
    }
    return end;
  }
};

c10::openreg::ForkSafeMutex clock_mutex;
std::atomic<bool> clock_runs{false};

SimulatedClocks& clocks() {
  static auto* const all = new SimulatedClocks; // a thread may use it while the process exits
  return *all;
}

// What limits a kernel, and its time without the latency.
std::pair<double, double ClockTotals::*> work_time(
    const DeviceRates& rates, const CallCost& cost, const std::array<double, 3>& bytes) {
  const double rate = rates.peak_flops[cost.precision] * rates.flop_efficiency[static_cast<size_t>(cost.kernel_class)];
  const auto of = [&](MemoryPlace place) { return bytes[static_cast<size_t>(place)]; };
  return std::max(
      {std::pair{of(MemoryPlace::device) / rates.memory_bandwidth, &ClockTotals::memory},
       std::pair{cost.flops > 0 ? cost.flops / rate : 0, &ClockTotals::compute},
       std::pair{
           of(MemoryPlace::host) / rates.host_bandwidth + of(MemoryPlace::peer) / rates.peer_bandwidth,
           &ClockTotals::link}},
      [](const auto& a, const auto& b) { return a.first < b.first; });
}

// The host launches work that takes `busy` seconds on its stream. A part of other work has been launched already.
void run(SimulatedClocks& all, const orActivity& activity, double busy, bool is_part, bool is_collective) {
  StreamClock& stream = all.stream(activity);
  all.host += is_part ? 0 : all.rates.launch_time;
  const double start = std::max({stream.end, stream.ready, all.host});
  if (stream.has_worked) {
    const double for_work = std::max(stream.ready - stream.end, 0.0);
    stream.totals.idle_for_work += for_work;
    stream.totals.idle_for_launch += start - stream.end - for_work;
  }
  stream.has_worked = true;
  stream.end = start + busy;
  stream.totals.busy += busy;
  BusyTime& device = all.devices[activity.device];
  (is_collective ? device.collectives : device.others).push_back({start, stream.end});
}

void add_collective(const orActivity& activity, const std::vector<CollectiveWork>& works) {
  const std::lock_guard lock(clock_mutex);
  SimulatedClocks& all = clocks();
  const double seconds = collective_time(works, all.rates.links);
  run(all, activity, seconds, false, true);
  all.totals.communication += seconds;
  KernelTotals& kernel = all.totals.kernels[activity.name];
  ++kernel.count;
  kernel.seconds += seconds;
  for (const CollectiveWork& each : works) {
    kernel.bytes += each.bytes;
  }
}

// Adds work with the thread's operands to the clock of its stream.
void add_work(const orActivity& activity) {
  ThreadWork& thread = *thread_work;
  const std::string_view name(activity.name);
  if (name.starts_with("occl:") || name == "aten::_local_scalar_dense") { // the host waits, and reads one number
    return;
  }
  std::array<double, 3> bytes{};
  double sum = 0;
  for (const OperandSize& each : thread.operands) {
    sum += each.bytes;
  }
  for (size_t i = 0; i < thread.operands.size(); ++i) {
    OperandSize each = thread.operands[i];
    if (i == 0 && thread.cost.looks_up) {
      each.bytes = std::min(each.bytes, sum - each.bytes);
    }
    bytes[static_cast<size_t>(each.place)] += each.moved();
  }
  const CallCost cost = std::exchange(thread.cost, CallCost{.looks_up = thread.cost.looks_up});
  const std::lock_guard lock(clock_mutex);
  SimulatedClocks& all = clocks();
  const bool is_part = (thread.is_one_launch || thread.is_replay) && std::exchange(thread.was_launched, true);
  const double latency = is_part && !thread.is_replay ? 0 : all.rates.kernel_latency;
  const auto [seconds, limit] = work_time(all.rates, cost, bytes);
  const double busy = seconds + latency;
  run(all, activity, busy, is_part, false);
  ClockTotals& totals = all.totals;
  totals.*limit += seconds;
  totals.latency += latency;
  totals.flops += cost.flops;
  totals.peak_seconds += cost.flops > 0 ? cost.flops / all.rates.peak_flops[cost.precision] : 0;
  KernelTotals& kernel = totals.kernels[activity.name];
  ++kernel.count;
  kernel.seconds += busy;
  kernel.flops += cost.flops;
  kernel.bytes += bytes[0] + bytes[1] + bytes[2];
  const bool waits = std::any_of(thread.operands.begin(), thread.operands.end(), [](const OperandSize& each) {
    orPointerAttributes attributes;
    return each.place == MemoryPlace::host && orPointerGetAttributes(&attributes, each.data) == orSuccess &&
           attributes.type == orMemoryTypeUnregistered;
  });
  if (waits) { // a copy from or to pageable memory
    all.host = std::max(all.host, all.stream(activity).end);
  }
}

void note_event(const orActivity& activity) {
  const std::string_view name(activity.name);
  const std::lock_guard lock(clock_mutex);
  SimulatedClocks& all = clocks();
  if (name == "orEventRecord") {
    const StreamClock& stream = all.stream(activity);
    all.events[activity.object] = std::max({stream.end, stream.ready, all.host});
  } else if (name == "orEventDestroy") {
    all.events.erase(activity.object);
  } else if (const auto event = all.events.find(activity.object); event == all.events.end()) {
    return; // never recorded: nothing waits
  } else if (name == "orStreamWaitEvent") {
    StreamClock& stream = all.stream(activity);
    stream.ready = std::max(stream.ready, event->second);
  } else if (name == "orEventSynchronize" || name == "orNoteWait") {
    all.host = std::max(all.host, event->second);
  }
}

// The host waits for a stream, or for a device.
void note_wait(const orActivity& activity) {
  const std::string_view name(activity.name);
  const std::lock_guard lock(clock_mutex);
  SimulatedClocks& all = clocks();
  if (name == "orDeviceSynchronize") {
    all.host = std::max(all.host, all.end_of(activity.device));
  } else if (
      activity.stream && (name == "orStreamSynchronize" || name == "orNoteWait" || name == "orMemcpy" ||
                          name == "orMemset" || name == "orMemcpyWithStream")) {
    all.host = std::max(all.host, all.stream(activity).end);
  }
}

void observe_time(const orActivity* activity, void*) {
  const bool ends = activity->phase != orActivityBegin;
  if (activity->kind == orActivityLaunch) {
    if (const auto works = read_collective(*activity)) {
      return add_collective(*activity, *works);
    }
    thread_work->operands.clear();
    collect(*activity);
    if (const CallCost* const cost = cost_of_captured(*activity)) {
      const CallCost outer = std::exchange(thread_work->cost, *cost);
      add_work(*activity);
      thread_work->cost = outer;
    } else {
      add_work(*activity);
    }
  } else if (activity->kind == orActivityCall && std::string_view(activity->name) == "orGraphLaunch") {
    thread_work->is_replay = !ends;
    thread_work->was_launched = false;
  } else if (activity->kind == orActivityKernel) {
    if (!ends && activity->correlation == 0 && orKernelDepth() == 1) {
      thread_work->kernel = activity->id;
      thread_work->operands.clear();
    } else if (activity->id != thread_work->kernel) {
      return;
    }
    collect(*activity);
    if (ends && !activity->failed) {
      add_work(*activity);
    }
  } else if (activity->object) {
    note_event(*activity);
  } else if (ends) {
    note_wait(*activity);
  }
}

double event_time(orEvent_t event) {
  const std::lock_guard lock(clock_mutex);
  const auto found = clocks().events.find(event);
  return found == clocks().events.end() ? 0 : found->second;
}

} // namespace

void start_clock(const DeviceRates& rates) {
  TORCH_CHECK(dry_limit() > 0, "Dry execution has not started.");
  TORCH_CHECK(!clock_runs.exchange(true), "The simulated clock has started already.");
  clocks().rates = rates;
  orSubscriber_t subscriber = nullptr;
  OPENREG_CHECK(orActivitySubscribe(
      &subscriber,
      &observe_time,
      nullptr,
      orActivityKernel | orActivityLaunch | orActivityCall | orActivitySynchronization | orActivityHandle));
  orDrySetEventTime(&event_time);
}

ClockTotals clock_totals() {
  const std::lock_guard lock(clock_mutex);
  SimulatedClocks& all = clocks();
  double exposed_later = 0;
  for (auto& [index, work] : all.devices) {
    // No later work begins before the host's time, so that the sum until then is complete.
    all.totals.exposed_communication += exposed({cut(work.collectives, all.host), cut(work.others, all.host)});
    exposed_later += exposed(work);
  }
  ClockTotals totals = all.totals;
  totals.exposed_communication += exposed_later;
  totals.now = all.host;
  for (const auto& [handle, stream] : all.streams) {
    totals.now = std::max(totals.now, stream.end);
    totals.streams.emplace(stream.number, stream.totals);
  }
  return totals;
}

OneLaunch::OneLaunch() {
  thread_work->is_one_launch = true;
  thread_work->was_launched = false;
}

OneLaunch::~OneLaunch() {
  thread_work->is_one_launch = false;
}

CostOfCall::CostOfCall(const CostFormula& formula, ArrayRef<c10::IValue> arguments) {
  if (clock_runs.load(std::memory_order_relaxed)) {
    outer_ = std::exchange(thread_work->cost, formula(arguments));
  }
}

CallCost cost_of_call() {
  return clock_runs.load(std::memory_order_relaxed) ? thread_work->cost : CallCost{};
}

CostOfCall::~CostOfCall() {
  if (clock_runs.load(std::memory_order_relaxed)) {
    thread_work->cost = outer_;
  }
}

} // namespace at::openreg
