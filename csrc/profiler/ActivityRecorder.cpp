#include "profiler/ActivityRecorder.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <tuple>
#include <utility>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegMutex.h"

namespace c10::openreg {
namespace {

constexpr unsigned kRecorded =
    orActivityKernel | orActivityCopy | orActivityFill | orActivityCall | orActivitySynchronization;

std::atomic<uint64_t> recording{0}; // the number of the recording; records of an earlier recording are dropped
orSubscriber_t subscriber = nullptr;

struct End {
  uint64_t id;
  approx_time_t time;
};

// The records of one thread. Only the thread itself writes them. stop_recording() reads them when the subscription has
// ended.
struct ThreadRecords {
  const int32_t thread = static_cast<int32_t>(::syscall(SYS_gettid));
  uint64_t recording = 0;
  std::vector<ActivityRecord> open; // activities that have begun and not ended: each is within the previous one
  std::vector<ActivityRecord> records;
  // Work that ends on another thread than it began on (orLaunchDeferred). stop_recording() joins both parts.
  std::vector<ActivityRecord> left; // activities that have not ended on this thread, but an activity around them has
  std::vector<End> ends;            // the ends of activities that did not begin on this thread
  std::vector<uint64_t> operations;
  std::vector<uint64_t> ranges; // the user's ranges that began on this thread
};

struct Threads {
  ForkSafeMutex mutex;
  std::vector<ThreadRecords*> all;
};

Threads& threads() {
  static auto* const instance = new Threads();
  return *instance;
}

// The records of the calling thread, made when the thread is observed for the first time. Never deleted, because a
// thread may be observed until its very end.
ThreadRecords& this_thread() {
  thread_local ThreadRecords* mine = nullptr;
  if (C10_UNLIKELY(mine == nullptr)) {
    mine = new ThreadRecords();
    Threads& known = threads();
    const std::lock_guard lock(known.mutex);
    known.all.push_back(mine);
  }
  const uint64_t current = recording.load(std::memory_order_relaxed);
  if (C10_UNLIKELY(mine->recording != current)) {
    mine->recording = current;
    mine->open.clear();
    mine->records.clear();
    mine->left.clear();
    mine->ends.clear();
    mine->operations.clear();
    mine->ranges.clear();
  }
  return *mine;
}

// Notes the places and the size of a copy or fill.
void note_places(const orActivity& activity, ActivityRecord& record) {
  const auto note = [](const orOperand* operand, void* context) {
    auto* const record = static_cast<ActivityRecord*>(context);
    orPointerAttributes attributes{};
    orPointerGetAttributes(&attributes, operand->data);
    ((operand->access & orAccessWrite) != 0 ? record->to : record->from) = {attributes.type, attributes.device};
    record->bytes = operand->itemSize;
  };
  orActivityVisitOperands(&activity, note, &record);
}

void record_activity(const orActivity* activity, void*) {
  const approx_time_t now = getApproximateTime();
  ThreadRecords& mine = this_thread();
  if (activity->phase == orActivityBegin) {
    ActivityRecord& record = mine.open.emplace_back();
    record.kind = activity->kind;
    record.id = activity->id;
    record.correlation = activity->correlation;
    record.name = activity->name;
    record.device = activity->device;
    record.stream = activity->stream;
    record.thread = record.began_on = mine.thread;
    record.operation = mine.operations.empty() ? 0 : mine.operations.back();
    if ((activity->kind & (orActivityCopy | orActivityFill)) != 0) {
      note_places(*activity, record);
    }
    record.begin = getApproximateTime(); // last: the work above is not part of the activity
    return;
  }
  while (!mine.open.empty() && mine.open.back().id > activity->id) {
    mine.left.push_back(mine.open.back()); // this activity ends on another thread, or never ends
    mine.open.pop_back();
  }
  if (!mine.open.empty() && mine.open.back().id == activity->id) {
    mine.open.back().end = now;
    mine.records.push_back(mine.open.back());
    mine.open.pop_back();
  } else {
    mine.ends.push_back({activity->id, now});
  }
}

// Adds the records of work that ended on another thread than it began on. Such a record gets the thread of the end,
// because that thread did the work.
void join_parts(const std::vector<ThreadRecords*>& threads, std::vector<ActivityRecord>& records) {
  std::unordered_map<uint64_t, std::pair<approx_time_t, int32_t>> ends; // by id: the time and the thread
  for (const ThreadRecords* thread : threads) {
    for (const End& end : thread->ends) {
      ends[end.id] = {end.time, thread->thread};
    }
  }
  for (const ThreadRecords* thread : threads) {
    for (const auto* begun : {&thread->open, &thread->left}) {
      for (const ActivityRecord& record : *begun) {
        if (const auto end = ends.find(record.id); end != ends.end()) {
          records.push_back(record);
          std::tie(records.back().end, records.back().thread) = end->second;
        }
      }
    }
  }
}

} // namespace

void start_recording() {
  recording.fetch_add(1);
  if (!orIsInBadFork()) {
    OPENREG_CHECK(orActivitySubscribe(&subscriber, record_activity, nullptr, kRecorded));
  }
}

Recording stop_recording() {
  Recording result;
  if (orSubscriber_t const mine = std::exchange(subscriber, nullptr)) {
    OPENREG_CHECK(orActivityUnsubscribe(mine));
  }
  Threads& known = threads();
  const std::lock_guard lock(known.mutex);
  std::vector<ThreadRecords*> recorded;
  std::copy_if(known.all.begin(), known.all.end(), std::back_inserter(recorded), [](const ThreadRecords* thread) {
    return thread->recording == recording;
  });
  join_parts(recorded, result.records);
  for (ThreadRecords* thread : recorded) {
    result.records.insert(result.records.end(), thread->records.begin(), thread->records.end());
    std::vector<ActivityRecord>().swap(thread->records);
    auto& ranges = result.ranges[thread->thread]; // the system may reuse the id of a thread that has ended
    ranges.insert(ranges.end(), thread->ranges.begin(), thread->ranges.end());
  }
  return result;
}

void push_operation(uint64_t id) {
  this_thread().operations.push_back(id);
}

void pop_operation() {
  auto& operations = this_thread().operations;
  if (!operations.empty()) { // otherwise the operator began before the recording
    operations.pop_back();
  }
}

void begin_range(uint64_t id) {
  this_thread().ranges.push_back(id);
}

} // namespace c10::openreg
