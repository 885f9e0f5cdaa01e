// Kineto's headers need both macros.
#define USE_KINETO
#define FMT_HEADER_ONLY

#include "profiler/Kineto.h"

#include <fmt/format.h>
#include <output_base.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "profiler/ActivityRecorder.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"

// LITERALINCLUDE START: KINETO RULES
// Adds the device's events to torch.profiler. This is a plugin of Kineto, the library that writes PyTorch's traces.
//
// For each profile Kineto makes a session, starts it and stops it. It tells the session which operators and which
// ranges of the user the calling thread enters. At the end the session returns its events. Rules:
//
//   1. The times come from the same clock as those of the host's events: see ActivityRecorder.h.
//   2. An event of the device is linked to its operator (`linked`). From these links PyTorch computes the device time
//      of each operator. A range on a stream's lane, its row in the trace, is not linked, because its kernels would
//      count twice. The ids of calls are metadata, because PyTorch would read the `id` of an event as the id of an
//      operator. An event without an operator has an `id` that no operator has. Without this `id`, PyTorch takes the id
//      of the operator that was running on the main thread, and a call of another thread then counts that operator's
//      kernels once more.
//   3. A call and the work that it started have the same flow, which is an arrow in the trace. A kernel that ran on the
//      thread of its operator was not launched, and has no arrow.
//   4. The name of a kernel differs from that of its operator. Otherwise PyTorch's tables would add both up in one row.
//   5. The row of a device has the name that the session gives Kineto, in getDeviceInfo() for the first device and with
//      handleDeviceInfo() for the others. Kineto names all other rows "GPU n".
// LITERALINCLUDE END: KINETO RULES
//
// Kineto's interface is not stable. This file is compiled for each minor version of PyTorch, and it is the place for
// differences between the versions.
namespace c10::openreg {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

// LITERALINCLUDE START: ACTIVITY TYPES
// PyTorch counts events of these types as events of the device, except for calls, which it counts as events
// of the host.
ActivityType type_of(orActivityKind kind) {
  switch (kind) {
    case orActivityKernel:
      return ActivityType::CONCURRENT_KERNEL;
    case orActivityCopy:
      return ActivityType::GPU_MEMCPY;
    case orActivityFill:
      return ActivityType::GPU_MEMSET;
    default:
      return ActivityType::PRIVATEUSE1_RUNTIME;
  }
}
// LITERALINCLUDE END: ACTIVITY TYPES

bool is_on_device(const ActivityRecord& record) {
  return type_of(record.kind) != ActivityType::PRIVATEUSE1_RUNTIME;
}

// The name of an event. Copies and fills have the names of CUDA's traces, such as "Memcpy HtoD (Pinned -> Device)".
std::string name_of(const ActivityRecord& record) {
  static constexpr const char* kMemory[] = {"Pageable", "Pinned", "Device"};
  static constexpr char kSide[] = {'H', 'H', 'D'};
  const auto& [from, to] = std::tie(record.from, record.to);
  switch (record.kind) {
    case orActivityKernel: {
      std::string_view name = record.name;
      if (name.starts_with("aten::")) {
        name.remove_prefix(6);
      }
      return fmt::format("openreg::{}", name);
    }
    case orActivityCopy: {
      const bool is_peer = from.type == orMemoryTypeDevice && to.type == orMemoryTypeDevice && from.device != to.device;
      return fmt::format(
          "Memcpy {}to{} ({} -> {})",
          is_peer ? 'P' : kSide[from.type],
          is_peer ? 'P' : kSide[to.type],
          kMemory[from.type],
          kMemory[to.type]);
    }
    case orActivityFill:
      return fmt::format("Memset ({})", kMemory[to.type]);
    default:
      return record.name;
  }
}

using Lane = std::pair<int, int64_t>;     // device, stream
using Span = std::pair<int64_t, int64_t>; // begin, end

// A kernel, copy or fill, as the trace shows it.
struct DeviceWork {
  int64_t call_begin; // the begin of the call that started the work, or of the work itself if it was not launched
  Lane lane;
  Span span;
};

// The calls of a recording, and which of them started work of the device.
class Calls {
 public:
  explicit Calls(const std::vector<ActivityRecord>& records) {
    for (const ActivityRecord& record : records) {
      if (is_on_device(record)) {
        starts_.insert(record.correlation);
      } else {
        calls_[record.id] = &record;
      }
    }
  }

  // Null: the call is not in the recording.
  const ActivityRecord* find(uint64_t id) const {
    const auto found = calls_.find(id);
    return found != calls_.end() ? found->second : nullptr;
  }

  bool started_something(uint64_t id) const {
    return starts_.contains(id);
  }

 private:
  std::unordered_map<uint64_t, const ActivityRecord*> calls_;
  std::set<uint64_t> starts_;
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(const std::set<ActivityType>& types) : types_(types) {}

  ~Session() override {
    if (status_ == libkineto::TraceStatus::RECORDING) {
      stop_recording();
    }
  }

  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    start_recording();
  }

  void stop() override {
    recording_ = stop_recording();
    to_unix_time_ = clock_.makeConverter();
    status_ = libkineto::TraceStatus::PROCESSING;
  }

  void pushCorrelationId(uint64_t id) override {
    push_operation(id);
  }
  void popCorrelationId() override {
    pop_operation();
  }
  void pushUserCorrelationId(uint64_t id) override {
    begin_range(id);
  }
  void popUserCorrelationId() override {} // does not say which range ends: see add_ranges()

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(logger, nullptr, 0, std::numeric_limits<int64_t>::max());
  }

  void processTrace(
      libkineto::ActivityLogger& logger,
      libkineto::getLinkedActivityCallback linked,
      int64_t from,
      int64_t to) override {
    buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer_->span = libkineto::TraceSpan(from, to, "openreg");
    buffer_->gpuOpCount = 0;
    const auto is_within = [&](const ActivityRecord& record) {
      return types_.contains(type_of(record.kind)) && time_of(record.begin) >= from && time_of(record.end) <= to;
    };
    const std::set<int32_t> workers = device_threads();
    std::erase_if(recording_.records, [&](const auto& record) { return !is_within(record); });
    const Calls calls(recording_.records);
    std::unordered_map<int32_t, std::vector<DeviceWork>> work; // by the thread that started it
    for (const ActivityRecord& record : recording_.records) {
      const ActivityRecord* const call = calls.find(record.correlation);
      const ActivityRecord& origin = call ? *call : record;
      GenericTraceActivity& event = add(record);
      const int64_t call_begin = link(event, record, origin, linked);
      add_times(event, record, call ? &call_begin : nullptr);
      if (is_on_device(record)) {
        if (call) {
          add_flow(event, record.correlation, false);
        }
        work[origin.began_on].push_back({call_begin, {event.device, event.resource}, {event.startTime, event.endTime}});
        if (!record.correlation && workers.contains(record.began_on)) {
          event.addMetadata("launched before the recording", true);
        }
      } else if (calls.started_something(record.id)) {
        add_flow(event, record.id, true);
      }
      logger.handleActivity(event);
    }
    if (linked && types_.contains(ActivityType::GPU_USER_ANNOTATION)) {
      for (auto& [thread, started] : work) {
        add_ranges(logger, linked, recording_.ranges[thread], started);
      }
    }
    for (const auto& [device, streams] : lanes_) {
      if (device != lanes_.begin()->first) { // Kineto asks for the first device itself: getDeviceInfo()
        logger.handleDeviceInfo(row_of(device), from);
      }
    }
  }

  // Without this function Kineto chooses the names of the devices' rows itself.
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return lanes_.empty() ? nullptr : std::make_unique<libkineto::DeviceInfo>(row_of(lanes_.begin()->first));
  }

  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [device, streams] : lanes_) {
      for (const int64_t stream : streams) {
        infos.push_back(
            {.id = stream,
             .sortIndex = stream,
             .deviceId = device,
             .name = fmt::format("stream {}{}", stream, stream == 0 ? " (default)" : "")});
      }
    }
    return infos;
  }

  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

  std::vector<std::string> errors() override {
    return {};
  }

  // JSON objects, separated by commas, with CUDA's names. Kineto puts them into a list.
  std::string getDeviceProperties() override {
    std::string all;
    for (DeviceIndex device = 0; device < device_count(); ++device) {
      orDeviceProp properties{};
      if (orGetDeviceProperties(&properties, device) == orSuccess) {
        all += fmt::format(
            R"({}{{"id": {}, "name": "{}", "totalGlobalMem": {}, "computeMajor": {}, "computeMinor": {}, "numSms": {}}})",
            all.empty() ? "" : ", ",
            device,
            properties.name,
            properties.totalGlobalMem,
            properties.major,
            properties.minor,
            properties.multiProcessorCount);
      }
    }
    return all;
  }

  std::unordered_map<std::string, std::string> getMetadata() override {
    orExecutionMode mode = orExecutionInline;
    if (orGetExecutionMode(&mode, nullptr) != orSuccess) {
      return {};
    }
    return {{"openreg_execution", fmt::format("\"{}\"", orGetExecutionModeName(mode))}};
  }

 private:
  const std::set<ActivityType> types_;
  ApproximateClockToUnixTimeConverter clock_;
  std::function<time_t(approx_time_t)> to_unix_time_;
  Recording recording_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_; // owns the events that the logger gets
  std::map<int, std::set<int64_t>> lanes_;            // by device: the streams that have events

  int64_t time_of(approx_time_t time) const {
    return to_unix_time_(time);
  }

  static libkineto::DeviceInfo row_of(int device) {
    return {
        .id = device,
        .sortIndex = device + libkineto::kExceedMaxPid,
        .name = "python",
        .label = Device(identity.type, static_cast<DeviceIndex>(device)).str()};
  }

  GenericTraceActivity& add(ActivityType type, const std::string& name, Span span) {
    buffer_->emplace_activity(buffer_->span, type, name);
    GenericTraceActivity& event = *buffer_->activities.back();
    std::tie(event.startTime, event.endTime) = span;
    return event;
  }

  GenericTraceActivity& add(const ActivityRecord& record) {
    GenericTraceActivity& event =
        add(type_of(record.kind), name_of(record), {time_of(record.begin), time_of(record.end)});
    event.threadId = record.thread;
    if (record.stream) {
      event.addMetadata("device", record.device);
      event.addMetadata("stream", stream_of(record));
    }
    if (!is_on_device(record)) {
      event.device = getpid();
      event.resource = record.thread;
      event.addMetadata("correlation", record.id);
      return event;
    }
    event.device = record.device;
    event.resource = static_cast<int32_t>(stream_of(record));
    lanes_[record.device].insert(event.resource);
    event.addMetadata("correlation", record.correlation);
    if (record.bytes) {
      event.addMetadata("bytes", record.bytes);
    }
    if (record.kind == orActivityCopy) {
      event.addMetadata("fromDevice", record.from.device);
      event.addMetadata("toDevice", record.to.device);
    }
    return event;
  }

  // Links the event of `record` to the operator in which `origin` happened: the call that started the activity, or the
  // activity itself. Returns the begin of `origin`, as the trace shows it.
  int64_t link(
      GenericTraceActivity& event,
      const ActivityRecord& record,
      const ActivityRecord& origin,
      const libkineto::getLinkedActivityCallback& linked) const {
    const int64_t origin_begin = time_of(origin.begin);
    const auto* const operation = linked && origin.operation ? linked(static_cast<int32_t>(origin.operation)) : nullptr;
    if (!operation) {
      event.id = kNoOperator;
      return origin_begin;
    }
    event.linked = operation;
    put_within(event, *operation, origin.thread == record.thread);
    const int64_t begin = operation->timestamp();
    return std::clamp(origin_begin, begin, begin + operation->duration());
  }

  // Adds an end of the arrow from a call to the work that it started.
  static void add_flow(GenericTraceActivity& event, uint64_t call, bool is_start) {
    event.flow.id = static_cast<uint32_t>(call);
    event.flow.type = libkineto::kLinkAsyncCpuGpu;
    event.flow.start = is_start;
  }

  // The device's own threads: those that ran work which other threads had launched, and neither called the device nor
  // entered an operator. What such a thread runs was launched. If no call is known, the call was before the recording.
  std::set<int32_t> device_threads() const {
    std::set<int32_t> callers;
    std::set<int32_t> workers;
    for (const ActivityRecord& record : recording_.records) {
      if (!is_on_device(record) || record.operation) {
        callers.insert(record.began_on);
      } else if (record.correlation) {
        workers.insert(record.began_on);
      }
    }
    std::erase_if(workers, [&](int32_t thread) { return callers.contains(thread); });
    return workers;
  }

  // For each range of the user on one thread, adds a span to the lane of each stream. The span covers the work that the
  // thread started within the range. Kineto says on which thread a range begins, but not which range ends: the ends are
  // those of the host's events.
  void add_ranges(
      libkineto::ActivityLogger& logger,
      const libkineto::getLinkedActivityCallback& linked,
      const std::vector<uint64_t>& ids,
      std::vector<DeviceWork>& started) {
    std::vector<const libkineto::ITraceActivity*> ranges;
    for (const uint64_t id : ids) {
      if (const auto* range = linked(static_cast<int32_t>(id))) {
        ranges.push_back(range);
      }
    }
    std::stable_sort(ranges.begin(), ranges.end(), [](auto* a, auto* b) { return a->timestamp() < b->timestamp(); });
    std::sort(started.begin(), started.end(), [](auto& a, auto& b) { return a.call_begin < b.call_begin; });
    std::vector<std::map<Lane, Span>> spans(ranges.size());
    std::vector<size_t> open; // the ranges in which the current work was started
    size_t next = 0;
    for (const auto& [call_begin, lane, span] : started) {
      for (; next < ranges.size() && ranges[next]->timestamp() <= call_begin; ++next) {
        open.push_back(next);
      }
      std::erase_if(open, [&](size_t each) { return end_of(*ranges[each]) < call_begin; });
      for (const size_t each : open) {
        Span& covered = spans[each].try_emplace(lane, span).first->second;
        covered = {std::min(covered.first, span.first), std::max(covered.second, span.second)};
      }
    }
    for (size_t each = 0; each < ranges.size(); ++each) {
      for (const auto& [lane, span] : spans[each]) {
        GenericTraceActivity& event = add(ActivityType::GPU_USER_ANNOTATION, ranges[each]->name(), span);
        event.device = lane.first;
        event.resource = static_cast<int32_t>(lane.second);
        logger.handleActivity(event);
      }
    }
  }

  // A range that has not ended has the duration 0, and covers the rest of the recording.
  static int64_t end_of(const libkineto::ITraceActivity& range) {
    return range.duration() > 0 ? range.timestamp() + range.duration() : std::numeric_limits<int64_t>::max();
  }

  // Moves the times of an event into those of the operator that started it. PyTorch converts the times of its operators
  // itself, and two conversions of one clock differ by nanoseconds. An event begins after its operator has begun; an
  // event on the operator's thread also ends before the operator ends.
  static void put_within(GenericTraceActivity& event, const libkineto::ITraceActivity& operation, bool same_thread) {
    const int64_t begin = operation.timestamp();
    const int64_t end = begin + operation.duration();
    event.startTime = std::max(event.startTime, begin);
    if (same_thread) {
      event.startTime = std::min(event.startTime, end);
      event.endTime = std::min(event.endTime, end);
    }
    event.endTime = std::max(event.startTime, event.endTime);
  }

  // Adds the figures that follow from times. They are computed from the times that the trace shows, so a reader who
  // computes them again gets the same figures.
  void add_times(GenericTraceActivity& event, const ActivityRecord& record, const int64_t* call_begin) {
    if (!is_on_device(record)) {
      return;
    }
    if (call_begin) {
      event.addMetadata("queued (us)", static_cast<double>(event.startTime - *call_begin) / 1000);
    }
    if (record.bytes) {
      const auto nanoseconds = std::max<int64_t>(1, event.endTime - event.startTime);
      event.addMetadata(
          "memory bandwidth (GB/s)", static_cast<double>(record.bytes) / static_cast<double>(nanoseconds));
    }
  }

  // The id of the stream in PyTorch. A stream that PyTorch did not make gets a number that is larger than the ids of
  // all PyTorch's streams.
  int64_t stream_of(const ActivityRecord& record) {
    const auto [it, is_new] = ids_.try_emplace(record.stream, 0);
    if (is_new) {
      try {
        it->second = getStreamFromExternal(record.stream, static_cast<DeviceIndex>(record.device)).id();
      } catch (const c10::Error&) {
        it->second = kForeignStreams + static_cast<int64_t>(ids_.size());
      }
    }
    return it->second;
  }

  static constexpr int32_t kNoOperator = -1; // Kineto writes only positive ids to the trace
  static constexpr int64_t kForeignStreams = 1000;
  std::unordered_map<orStream_t, int64_t> ids_;
};

} // namespace

std::unique_ptr<libkineto::IActivityProfilerSession> OpenRegProfiler::configure(
    const std::set<ActivityType>& types, const libkineto::Config&) {
  // A profile of the host alone asks for calls too, but for no type of the device.
  const bool has_device = std::any_of(types.begin(), types.end(), [](ActivityType type) {
    return type == ActivityType::CONCURRENT_KERNEL || type == ActivityType::GPU_MEMCPY ||
           type == ActivityType::GPU_MEMSET || type == ActivityType::GPU_USER_ANNOTATION;
  });
  return has_device ? std::make_unique<Session>(types) : nullptr;
}

const std::set<ActivityType>& OpenRegProfiler::availableActivities() const {
  static const std::set<ActivityType> types = {
      ActivityType::CONCURRENT_KERNEL,
      ActivityType::GPU_MEMCPY,
      ActivityType::GPU_MEMSET,
      ActivityType::GPU_USER_ANNOTATION,
      ActivityType::PRIVATEUSE1_RUNTIME,
      ActivityType::PRIVATEUSE1_DRIVER};
  return types;
}

} // namespace c10::openreg
