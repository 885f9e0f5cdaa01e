#include "profiler/Utilization.h"

#include <openreg_activity.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

namespace c10::openreg {
namespace {

using Clock = std::chrono::steady_clock;

struct Interval {
  Clock::time_point begin;
  Clock::time_point end;
  bool kernel; // false: a copy or a fill
};

// The intervals in which activities of one device run, from `start` on.
struct Watch {
  const int device;
  const Clock::time_point start = Clock::now();
  std::mutex mutex{};
  std::unordered_map<uint64_t, Interval> running{}; // by the activity's id
  std::vector<Interval> ended{};
};

void note(const orActivity* activity, void* data) {
  Watch& watch = *static_cast<Watch*>(data);
  if (activity->device != watch.device) {
    return;
  }
  const auto now = Clock::now();
  const std::lock_guard lock(watch.mutex);
  if (activity->phase == orActivityBegin) {
    watch.running[activity->id] = {now, now, activity->kind == orActivityKernel};
  } else if (activity->phase == orActivityEnd) {
    const auto known = watch.running.extract(activity->id);
    // An activity without a known begin has begun before the watch.
    watch.ended.push_back({known ? known.mapped().begin : watch.start, now, activity->kind == orActivityKernel});
  }
}

// The length of the union of the intervals, which are sorted by their begin.
Clock::duration covered(const std::vector<Interval>& intervals, bool only_kernels) {
  Clock::duration sum{};
  Clock::time_point until{};
  for (const Interval& interval : intervals) {
    if ((interval.kernel || !only_kernels) && interval.end > until) {
      sum += interval.end - std::max(interval.begin, until);
      until = interval.end;
    }
  }
  return sum;
}

} // namespace

Utilization measure_utilization(DeviceIndex device, std::chrono::nanoseconds period) {
  Watch watch{device};
  orSubscriber_t subscriber = nullptr;
  OPENREG_CHECK(orActivitySubscribe(&subscriber, note, &watch, orActivityKernel | orActivityCopy | orActivityFill));
  std::this_thread::sleep_for(period);
  OPENREG_CHECK(orActivityUnsubscribe(subscriber)); // no thread is in note() any more
  const auto end = Clock::now();
  std::vector<Interval>& intervals = watch.ended;
  for (const auto& [id, interval] : watch.running) {
    intervals.push_back({interval.begin, end, interval.kernel});
  }
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  const std::chrono::duration<double> whole = end - watch.start;
  return {covered(intervals, true) / whole, covered(intervals, false) / whole};
}

} // namespace c10::openreg
