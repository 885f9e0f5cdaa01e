#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/AllocatorConfig.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <thread>

#include "Bindings.h"
#include "profiler/Utilization.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"
#include "runtime/memory/OpenRegHostAllocator.h"

namespace torch {
// A function of libtorch_python. It is declared here because its header (profiler/python/combined_traceback.h) includes
// nlohmann/json.hpp, which not every version of PyTorch ships.
TORCH_API std::vector<py::object> py_symbolize(std::vector<CapturedTraceback*>& to_symbolize);
} // namespace torch

namespace py = pybind11;
using c10::MempoolId_t;
using c10::openreg::device_allocator;
using c10::openreg::RecordContext;
using c10::openreg::TraceEntry;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

namespace {

at::HostAllocator* host_allocator() {
  return at::getHostAllocator(c10::openreg::identity.type);
}

// ---- statistics, with the keys of torch.cuda.memory_stats()

py::dict to_dict(const c10::CachingAllocator::Stat& stat) {
  py::dict result;
  result["current"] = stat.current;
  result["peak"] = stat.peak;
  result["allocated"] = stat.allocated;
  result["freed"] = stat.freed;
  return result;
}

py::dict to_dict(const c10::CachingAllocator::DurationStat& stat) {
  py::dict result;
  result["total"] = stat.total;
  result["max"] = stat.max;
  result["min"] = stat.min;
  result["count"] = stat.count;
  result["avg"] = stat.count == 0 ? 0.0 : static_cast<double>(stat.total) / static_cast<double>(stat.count);
  return result;
}

// The statistics that torch._C._accelerator_getDeviceStats() leaves out.
py::dict more_memory_stats(c10::DeviceIndex device) {
  const auto stats = device_allocator()->getDeviceStats(device);
  py::dict by_pool;
  for (const auto& [id, sizes] : stats.reserved_bytes_by_private_pools) {
    py::dict pools;
    pools["all"] = to_dict(sizes[0]);
    pools["small_pool"] = to_dict(sizes[1]);
    pools["large_pool"] = to_dict(sizes[2]);
    by_pool[py::make_tuple(id.first, id.second)] = pools;
  }
  py::dict result;
  result["reserved_bytes_by_private_pools"] = by_pool;
  result["num_oom_rejections"] = stats.num_oom_rejections;
  return result;
}

py::dict host_memory_stats() {
  const at::HostStats stats = host_allocator()->get_stats();
  py::dict result;
  result["num_host_alloc"] = stats.num_host_alloc;
  result["num_host_free"] = stats.num_host_free;
  result["allocations"] = to_dict(stats.allocations);
  result["active_requests"] = to_dict(stats.active_requests);
  result["allocated_bytes"] = to_dict(stats.allocated_bytes);
  result["active_bytes"] = to_dict(stats.active_bytes);
  result["host_alloc_time"] = to_dict(stats.host_alloc_time);
  result["host_free_time"] = to_dict(stats.host_free_time);
  return result;
}

// ---- memory pools

// A filter for begin_allocate_to_pool(): true on the thread that called on_this_thread().
auto on_this_thread() {
  return [thread = std::this_thread::get_id()](c10::Stream) { return std::this_thread::get_id() == thread; };
}

// The same as torch._C._MemPool, which exists only in builds with CUDA.
class MemPool {
 public:
  MemPool(bool use_on_oom, bool no_split) : device_(c10::openreg::current_device()), id_(0, ++last_id) {
    device_allocator()->use_pool(device_, id_);
    device_allocator()->set_pool_policy(device_, id_, use_on_oom, no_split);
  }
  ~MemPool() {
    device_allocator()->release_pool(device_, id_);
  }
  MemPool(const MemPool&) = delete;
  MemPool& operator=(const MemPool&) = delete;

  MempoolId_t id() const {
    return id_;
  }
  int use_count() const {
    return device_allocator()->pool_use_count(device_, id_);
  }

 private:
  static inline std::atomic<c10::CaptureId_t> last_id{0};
  c10::DeviceIndex device_;
  MempoolId_t id_;
};

// ---- history

std::shared_ptr<c10::GatheredContext> gather() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false);
}

std::shared_ptr<c10::GatheredContext> gather_with_cpp() {
  return torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/true);
}

// The events for which a stack trace is recorded.
RecordContext parse_context(const std::optional<std::string>& context) {
  if (!context) {
    return RecordContext::NEVER;
  }
  if (*context == "state") {
    return RecordContext::STATE;
  }
  if (*context == "alloc") {
    return RecordContext::ALLOC;
  }
  TORCH_CHECK(*context == "all", "expected context to be 'state', 'alloc', 'all', or None");
  return RecordContext::ALL;
}

void record_memory_history(
    const std::optional<std::string>& enabled,
    const std::optional<std::string>& context,
    const std::string& stacks,
    size_t max_entries,
    bool clear_history,
    const std::vector<std::string>& skip_actions) {
  TORCH_CHECK(!enabled || *enabled == "state" || *enabled == "all", "expected state to be 'state', 'all', or None");
  TORCH_CHECK(stacks == "python" || stacks == "all", "expected stacks to be 'python', or 'all'");
  at::globalContext().lazyInitDevice(c10::openreg::identity.type);
  std::optional<c10::openreg::HistoryOptions> options;
  if (enabled) {
    options.emplace();
    options->gather = stacks == "all" ? gather_with_cpp : gather;
    options->when = parse_context(context);
    // "state": the stack traces of blocks in use, and (as in CUDA) only the last entry of the history.
    options->max_entries = *enabled == "all" ? max_entries : 1;
    for (const std::string& action : skip_actions) {
      options->skipped.push_back(c10::CachingDeviceAllocator::parseTraceEntryAction(action));
    }
    if (stacks == "all") {
      torch::unwind::unwind(); // now, because the first call is slow
    }
  }
  c10::openreg::record_pinned_memory(options && options->when >= RecordContext::STATE ? options->gather : nullptr);
  device_allocator()->record_history(std::move(options), clear_history);
}

const char* action_name(TraceEntry::Action action) {
  switch (action) {
    case TraceEntry::ALLOC:
      return "alloc";
    case TraceEntry::FREE_REQUESTED:
      return "free_requested";
    case TraceEntry::FREE_COMPLETED:
      return "free_completed";
    case TraceEntry::SEGMENT_ALLOC:
      return "segment_alloc";
    case TraceEntry::SEGMENT_FREE:
      return "segment_free";
    case TraceEntry::OOM:
      return "oom";
    case TraceEntry::SNAPSHOT:
      return "snapshot";
    default: // the other actions belong to expandable segments
      TORCH_INTERNAL_ASSERT(false, "unexpected action in the memory history");
  }
}

// Converts a snapshot to the dictionary that torch/cuda/_memory_viz.py reads. The stack traces are symbolized in one
// call at the end, because that call may have to start a process (addr2line) for frames of C++.
class SnapshotToDict {
 public:
  py::dict convert(const c10::openreg::MemorySnapshot& snapshot) {
    py::list segments;
    for (const auto& segment : snapshot.segments) {
      segments.append(convert(segment));
    }
    py::list traces;
    for (const auto& entries : snapshot.device_traces) {
      py::list trace;
      for (const TraceEntry& entry : entries) {
        trace.append(convert(entry));
      }
      traces.append(trace);
    }
    fill_in_frames();
    py::dict result;
    result["segments"] = segments;
    result["device_traces"] = traces;
    result["allocator_settings"] = settings();
    result["external_annotations"] = py::list();
    return result;
  }

  py::list convert(const std::vector<c10::openreg::PinnedBlock>& blocks) {
    py::list result;
    for (const auto& block : blocks) {
      py::dict part;
      part["address"] = reinterpret_cast<uintptr_t>(block.address);
      part["requested_size"] = block.size;
      add_frames(part, block.context);
      result.append(part);
    }
    fill_in_frames();
    return result;
  }

 private:
  std::vector<torch::CapturedTraceback*> traces_;
  std::vector<py::dict> owners_; // owners_[i] is the dictionary that gets the frames of traces_[i]

  void add_frames(const py::dict& owner, const std::shared_ptr<c10::GatheredContext>& context) {
    owner["frames"] = py::list();
    if (context) {
      traces_.push_back(torch::getCapturedTracebackFromContext(context));
      owners_.push_back(owner);
    }
  }

  void fill_in_frames() {
    const auto frames = torch::py_symbolize(traces_);
    for (size_t i = 0; i < owners_.size(); ++i) {
      owners_[i]["frames"] = frames[i];
    }
  }

  py::dict convert(const c10::CachingDeviceAllocator::SegmentInfo& segment) {
    py::list blocks;
    size_t address = segment.address;
    for (const auto& block : segment.blocks) {
      py::dict part;
      part["address"] = address;
      part["size"] = block.size;
      part["requested_size"] = block.requested_size;
      part["state"] = block.allocated ? "active_allocated" : block.active ? "active_awaiting_free" : "inactive";
      add_frames(part, block.context_when_allocated);
      blocks.append(part);
      address += block.size;
    }
    py::dict result;
    result["device"] = segment.device;
    result["address"] = segment.address;
    result["total_size"] = segment.total_size;
    result["allocated_size"] = segment.allocated_size;
    result["active_size"] = segment.active_size;
    result["requested_size"] = segment.requested_size;
    result["stream"] = reinterpret_cast<intptr_t>(segment.stream);
    result["segment_type"] = segment.is_large ? "large" : "small";
    result["segment_pool_id"] = segment.owner_private_pool_id;
    result["is_expandable"] = segment.is_expandable;
    add_frames(result, segment.context_when_allocated);
    result["blocks"] = blocks;
    return result;
  }

  py::dict convert(const TraceEntry& entry) {
    py::dict result;
    result["action"] = action_name(entry.action_);
    result[entry.action_ == TraceEntry::OOM ? "device_free" : "addr"] = entry.addr_;
    result["size"] = entry.size_;
    result["stream"] = reinterpret_cast<intptr_t>(entry.stream_);
    result["pool_id"] = entry.mempool_;
    result["time_us"] = entry.time_.t_;
    result["compile_context"] = entry.compile_context_;
    result["user_metadata"] = entry.user_metadata_;
    add_frames(result, entry.context_);
    return result;
  }

  static py::dict settings() {
    using AllocatorConfig = c10::CachingAllocator::AcceleratorAllocatorConfig;
    py::dict roundup;
    size_t megabytes = 1;
    for (const size_t divisions : AllocatorConfig::roundup_power2_divisions()) {
      roundup[py::str(std::to_string(megabytes))] = divisions;
      megabytes *= 2;
    }
    py::dict result;
    result["PYTORCH_ALLOC_CONF"] = AllocatorConfig::last_allocator_settings();
    result["max_split_size"] = static_cast<int64_t>(AllocatorConfig::max_split_size());
    result["garbage_collection_threshold"] = AllocatorConfig::garbage_collection_threshold();
    result["expandable_segments"] = false;
    result["roundup_power2_divisions"] = roundup;
    return result;
  }
};

py::dict memory_snapshot(const std::optional<MempoolId_t>& pool, bool include_traces) {
  return SnapshotToDict().convert(device_allocator()->snapshot(pool.value_or(MempoolId_t{0, 0}), include_traces));
}

py::list recorded_pinned_memory() {
  return SnapshotToDict().convert(c10::openreg::recorded_pinned_memory());
}

py::object allocation_traceback(uintptr_t address) {
  const auto context = device_allocator()->context_of(reinterpret_cast<void*>(address));
  if (!context) {
    return py::none();
  }
  std::vector<torch::CapturedTraceback*> traces{torch::getCapturedTracebackFromContext(context)};
  return torch::py_symbolize(traces).front();
}

void attach_out_of_memory_observer(py::function observer) {
  // Never destroyed: the allocator outlives the interpreter.
  auto* callback = new py::function(std::move(observer));
  device_allocator()->attach_out_of_memory_observer([callback](int64_t device, size_t size, size_t total, size_t free) {
    const py::gil_scoped_acquire gil;
    (*callback)(device, size, total, free);
  });
}

// Functions of the allocators that torch.openreg.memory needs and torch.accelerator does not have.
void add_memory(py::module_& module) {
  // These functions check nothing: the allocator and torch.openreg.memory check sizes and devices. Addresses are device
  // addresses, which the host cannot access.
  module.def(
      "_caching_allocator_alloc",
      wrap_pybind_function(
          [](size_t size) { return reinterpret_cast<uintptr_t>(device_allocator()->raw_allocate(size)); }),
      py::arg("size"));
  module.def(
      "_caching_allocator_delete",
      wrap_pybind_function(
          [](uintptr_t address) { device_allocator()->raw_deallocate(reinterpret_cast<void*>(address)); }),
      py::arg("address"));
  module.def(
      "_get_memory_fraction",
      wrap_pybind_function(
          [](int device) { return device_allocator()->memory_fraction(static_cast<c10::DeviceIndex>(device)); }),
      py::arg("device"));
  module.def(
      "_set_memory_fraction",
      wrap_pybind_function([](double fraction, int device) {
        device_allocator()->set_memory_fraction(fraction, static_cast<c10::DeviceIndex>(device));
      }),
      py::arg("fraction"),
      py::arg("device"));
  module.def(
      "_measure_utilization",
      wrap_pybind_function_no_gil([](int device, double seconds) {
        const auto [compute, memory] = c10::openreg::measure_utilization(
            static_cast<c10::DeviceIndex>(device),
            std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::duration<double>(seconds)));
        return std::make_pair(compute, memory);
      }),
      py::arg("device"),
      py::arg("seconds"));
  module.def(
      "_more_memory_stats",
      wrap_pybind_function([](int device) { return more_memory_stats(static_cast<c10::DeviceIndex>(device)); }),
      py::arg("device"));
  module.def("_host_memory_stats", wrap_pybind_function(&host_memory_stats));
  module.def("_reset_accumulated_host_memory_stats", wrap_pybind_function([] {
               host_allocator()->reset_accumulated_stats();
             }));
  module.def("_reset_peak_host_memory_stats", wrap_pybind_function([] { host_allocator()->reset_peak_stats(); }));

  py::class_<MemPool>(module, "_MemPool")
      .def(py::init<bool, bool>(), py::arg("use_on_oom"), py::arg("no_split"))
      .def_property_readonly("id", &MemPool::id)
      .def("use_count", wrap_pybind_function(&MemPool::use_count));
  module.def(
      "_begin_allocate_current_thread_to_pool",
      wrap_pybind_function([](int device, MempoolId_t id) {
        device_allocator()->begin_allocate_to_pool(static_cast<c10::DeviceIndex>(device), id, on_this_thread());
      }),
      py::arg("device"),
      py::arg("pool"));
  module.def(
      "_end_allocate_to_pool",
      wrap_pybind_function([](int device, MempoolId_t id) {
        device_allocator()->end_allocate_to_pool(static_cast<c10::DeviceIndex>(device), id);
      }),
      py::arg("device"),
      py::arg("pool"));
  module.def(
      "_release_pool",
      wrap_pybind_function([](int device, MempoolId_t id) {
        device_allocator()->release_pool(static_cast<c10::DeviceIndex>(device), id);
      }),
      py::arg("device"),
      py::arg("pool"));

  module.def(
      "_record_memory_history",
      wrap_pybind_function(&record_memory_history),
      py::arg("enabled"),
      py::arg("context"),
      py::arg("stacks"),
      py::arg("max_entries"),
      py::arg("clear_history"),
      py::arg("skip_actions"));
  module.def("_recorded_pinned_memory", wrap_pybind_function(&recorded_pinned_memory));
  module.def("_is_memory_history_enabled", [] { return device_allocator()->history_enabled(); });
  module.def("_memory_snapshot", wrap_pybind_function(&memory_snapshot), py::arg("pool"), py::arg("include_traces"));
  module.def("_allocation_traceback", wrap_pybind_function(&allocation_traceback), py::arg("address"));
  module.def("_set_memory_metadata", &c10::openreg::set_memory_metadata, py::arg("metadata"));
  module.def("_get_memory_metadata", &c10::openreg::memory_metadata);
  module.def(
      "_attach_out_of_memory_observer", wrap_pybind_function(&attach_out_of_memory_observer), py::arg("observer"));
}

const Bindings memory_bindings(&add_memory);

} // namespace
