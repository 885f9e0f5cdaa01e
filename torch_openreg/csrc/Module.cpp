// torch_openreg._C: the functions in C++ that the Python package calls. This file has those of devices, streams and
// operators. Bindings.h says how the other files of this folder add theirs.
#include <ATen/Context.h>
#include <openreg_progress.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include "Bindings.h"
#include "aten/native/FallbackPolicy.h"
#include "aten/native/InlineOrQueued.h"
#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegSharing.h"
#include "runtime/OpenRegStream.h"

namespace py = pybind11;
namespace openreg = c10::openreg;

using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

namespace {

// Starts the device. After that, a forked child cannot use it.
void init() {
  at::globalContext().lazyInitDevice(c10::openreg::identity.type);
  if (const orError_t state = orStreamQuery(nullptr); state != orErrorNotReady) { // starts the device without a wait
    OPENREG_CHECK(state);
  }
}

// Checks the index before the conversion, because Python's integers are wider than a DeviceIndex.
c10::DeviceIndex checked_index(int64_t device) {
  openreg::check_device_index(device);
  return static_cast<c10::DeviceIndex>(device);
}

int exchange_device(int64_t device) {
  return openreg::exchange_device(device < 0 ? c10::DeviceIndex(-1) : checked_index(device));
}

py::object default_generator(int64_t device) {
  return py::reinterpret_steal<py::object>(THPGenerator_Wrap(openreg::default_generator(checked_index(device))));
}

c10::Stream default_stream(int64_t device) {
  return openreg::getDefaultOpenRegStream(checked_index(device));
}

void order_after_current_stream(uintptr_t stream, int64_t device) {
  openreg::order_after_current_stream(reinterpret_cast<orStream_t>(stream), checked_index(device));
}

orDeviceProp device_properties(int64_t device) {
  orDeviceProp properties{};
  OPENREG_CHECK(orGetDeviceProperties(&properties, checked_index(device)));
  return properties;
}

// The description of shared memory that is sent between processes, as a Python tuple.
using SharedTuple = std::tuple<int64_t, py::bytes, size_t, size_t, py::bytes, size_t, uint64_t>;

py::tuple share_storage(const c10::Storage& storage, std::optional<openreg::Processes> receivers) {
  openreg::SharedStorage shared;
  {
    const py::gil_scoped_release without_gil; // share_storage() waits for the device
    shared = openreg::share_storage(storage, std::move(receivers));
  }
  return py::cast(SharedTuple(
      shared.device,
      py::bytes(shared.memory),
      shared.offset,
      shared.size,
      py::bytes(shared.slots),
      shared.slot,
      shared.number));
}

openreg::SharedStorage unpack_shared(const py::tuple& shared) {
  try {
    const auto [device, memory, offset, size, slots, slot, number] = shared.cast<SharedTuple>();
    return {device, memory, offset, size, slots, slot, number};
  } catch (const py::cast_error&) {
    TORCH_CHECK(false, "Expected what _share_storage() returned in another process, but got something else.");
  }
}

bool can_access_peer(int64_t device, int64_t peer) {
  int result = 0;
  OPENREG_CHECK(orDeviceCanAccessPeer(&result, checked_index(device), checked_index(peer)));
  return result != 0;
}

std::pair<int, std::vector<std::string>> fallback_policy() {
  const at::openreg::FallbackPolicy policy = at::openreg::fallback_policy();
  return {static_cast<int>(policy.mode), policy.allowed};
}

void set_fallback_policy(int mode, std::vector<std::string> allowed) {
  at::openreg::set_fallback_policy({static_cast<at::openreg::FallbackMode>(mode), std::move(allowed)});
}

// The innermost line of Python that does not belong to PyTorch, or else the innermost line: "train.py:12 in step".
std::string python_line() {
  const py::gil_scoped_acquire gil;
  const auto is_torchs = [](const std::string& file) { return file.find("/torch/") != std::string::npos; };
  std::string found;
  py::object frame =
      py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyThreadState_GetFrame(PyThreadState_Get())));
  while (frame) {
    auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const auto code = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetCode(raw)));
    const std::string file = code.attr("co_filename").cast<std::string>();
    if (found.empty() || !is_torchs(file)) {
      found = c10::str(file, ":", PyFrame_GetLineNumber(raw), " in ", code.attr("co_name").cast<std::string>());
    }
    if (!is_torchs(file)) {
      break;
    }
    frame = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(PyFrame_GetBack(raw)));
  }
  return found;
}

// Called before a wait for the device: releases Python's interpreter lock, because the work that the thread waits for
// may be Python code. Returns null if this thread does not hold the lock.
void* release_interpreter() {
  return Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
}

void acquire_interpreter(void* thread_state) {
  PyEval_RestoreThread(static_cast<PyThreadState*>(thread_state));
}

void record_launch_sites(bool enabled) {
  openreg::check_not_forked();
  openreg::set_launch_site(enabled ? &python_line : nullptr);
}

std::string to_string(const orUuid& uuid) {
  std::string text;
  for (const unsigned char byte : uuid.bytes) {
    if (text.size() == 8 || text.size() == 13 || text.size() == 18 || text.size() == 23) {
      text += '-';
    }
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[byte >> 4], kDigits[byte & 15]};
  }
  return text;
}

void add_device_properties(py::module_& module) {
  py::class_<orUuid>(module, openreg::identity.uuid_class)
      .def_property_readonly(
          "bytes",
          [](const orUuid& uuid) { return std::vector<uint8_t>(std::begin(uuid.bytes), std::end(uuid.bytes)); })
      .def("__str__", &to_string);
  const auto name = [](const orDeviceProp& p) { return std::string(p.name); };
  py::class_<orDeviceProp>(module, openreg::identity.properties_class)
      .def_property_readonly("name", name)
      .def_property_readonly("gcnArchName", name) // a property of ROCm; with CUDA, PyTorch stores the name there
      .def_readonly("uuid", &orDeviceProp::uuid)
      .def_readonly("major", &orDeviceProp::major)
      .def_readonly("minor", &orDeviceProp::minor)
      .def_readonly("multi_processor_count", &orDeviceProp::multiProcessorCount)
      .def_readonly("total_memory", &orDeviceProp::totalGlobalMem)
      .def_readonly("warp_size", &orDeviceProp::warpSize)
      .def_readonly("max_threads_per_block", &orDeviceProp::maxThreadsPerBlock)
      .def_readonly("max_threads_per_multi_processor", &orDeviceProp::maxThreadsPerMultiProcessor)
      .def_readonly("regs_per_multiprocessor", &orDeviceProp::regsPerMultiprocessor)
      .def_readonly("shared_memory_per_block", &orDeviceProp::sharedMemPerBlock)
      .def_readonly("shared_memory_per_block_optin", &orDeviceProp::sharedMemPerBlockOptin)
      .def_readonly("shared_memory_per_multiprocessor", &orDeviceProp::sharedMemPerMultiprocessor)
      .def_readonly("L2_cache_size", &orDeviceProp::l2CacheSize)
      .def_readonly("clock_rate", &orDeviceProp::clockRate)
      .def_readonly("memory_clock_rate", &orDeviceProp::memoryClockRate)
      .def_readonly("memory_bus_width", &orDeviceProp::memoryBusWidth)
      .def_readonly("pci_domain_id", &orDeviceProp::pciDomainID)
      .def_readonly("pci_bus_id", &orDeviceProp::pciBusID)
      .def_readonly("pci_device_id", &orDeviceProp::pciDeviceID)
      .def_property_readonly("is_integrated", [](const orDeviceProp& p) { return int(p.integrated); })
      .def_property_readonly("is_multi_gpu_board", [](const orDeviceProp& p) { return int(p.isMultiGpuBoard); })
      .def("__repr__", [](const orDeviceProp& p) {
        return c10::str(
            openreg::identity.properties_class,
            "(name='",
            p.name,
            "', major=",
            p.major,
            ", minor=",
            p.minor,
            ", total_memory=",
            p.totalGlobalMem >> 20,
            "MB, multi_processor_count=",
            p.multiProcessorCount,
            ", uuid=",
            to_string(p.uuid),
            ", pci_bus_id=",
            p.pciBusID,
            ", pci_device_id=",
            p.pciDeviceID,
            ", pci_domain_id=",
            p.pciDomainID,
            ", L2_cache_size=",
            p.l2CacheSize >> 20,
            "MB)");
      });
}

} // namespace

extern "C" OPENREG_API PyObject* openreg_init_module() {
  static PyModuleDef definition{};
  auto module = py::module_::create_extension_module("torch_openreg._C", nullptr, &definition);

  module.def("_init", wrap_pybind_function(&init));
  // The device library's answer, and not torch::utils::is_device_in_bad_fork(): that knows only of a start through
  // Python (register_fork_handler_for_device_init), and a C++ program or autograd may start the device without it.
  module.def("_isInBadFork", &orIsInBadFork);
  module.def("_check_device_index", wrap_pybind_function(&openreg::check_device_index), py::arg("device"));
  module.def("_get_device_count", wrap_pybind_function([] { return int(openreg::device_count()); }));
  module.def("_get_device", wrap_pybind_function([] { return int(openreg::current_device()); }));
  module.def(
      "_set_device",
      wrap_pybind_function([](int64_t device) { openreg::set_device(checked_index(device)); }),
      py::arg("device"));
  module.def("_exchangeDevice", wrap_pybind_function(&exchange_device), py::arg("device"));
  module.def("_get_default_generator", wrap_pybind_function(&default_generator), py::arg("device"));
  module.def("_get_default_stream", wrap_pybind_function(&default_stream), py::arg("device"));
  module.def(
      "_order_after_current_stream",
      wrap_pybind_function(&order_after_current_stream),
      py::arg("stream"),
      py::arg("device"));
  module.def("_get_device_properties", wrap_pybind_function(&device_properties), py::arg("device"));
  module.def("_can_device_access_peer", wrap_pybind_function(&can_access_peer), py::arg("device"), py::arg("peer"));
  module.def("_fallback_policy", wrap_pybind_function(&fallback_policy));
  module.def("_set_fallback_policy", wrap_pybind_function(&set_fallback_policy), py::arg("mode"), py::arg("allowed"));
  module.def("_fallback_counts", wrap_pybind_function(&at::openreg::fallback_counts));
  module.def("_reset_fallback_counts", wrap_pybind_function(&at::openreg::reset_fallback_counts));
  module.def(
      "_is_queueable",
      [](const char* name, const char* overload) {
        const auto op = c10::Dispatcher::singleton().findOp({name, overload});
        return op && at::openreg::is_queueable(*op);
      },
      py::arg("name"),
      py::arg("overload"));
  module.def(
      "_set_execution_mode",
      wrap_pybind_function_no_gil([](const std::string& name, uint64_t seed) {
        orExecutionMode mode{};
        TORCH_CHECK_VALUE(orFindExecution(name.c_str(), &mode, &seed) == orSuccess, orGetLastErrorMessage());
        OPENREG_CHECK(orSetExecutionMode(mode, seed));
      }),
      py::arg("name"),
      py::arg("seed"));
  module.def("_get_execution_mode", wrap_pybind_function([] {
               orExecutionMode mode{};
               uint64_t seed = 0;
               OPENREG_CHECK(orGetExecutionMode(&mode, &seed));
               return std::make_tuple(orGetExecutionModeName(mode), seed);
             }));
  OPENREG_CHECK(orSetWaitCallbacks(&release_interpreter, &acquire_interpreter));
  module.def("_record_launch_sites", wrap_pybind_function(&record_launch_sites), py::arg("enabled"));
  if (const char* value = std::getenv("TORCH_OPENREG_LAUNCH_TRACEBACK")) {
    record_launch_sites(std::string_view(value) == "1");
  }
  module.def(
      "_set_sync_debug_mode",
      wrap_pybind_function([](int mode) {
        openreg::check_not_forked();
        openreg::sync_debug_mode = openreg::SyncDebugMode(mode);
      }),
      py::arg("mode"));
  module.def("_get_sync_debug_mode", [] { return int(openreg::sync_debug_mode.load()); });
  module.def("_share_storage", wrap_pybind_function(&share_storage), py::arg("storage"), py::arg("receivers"));
  module.def(
      "_open_storage",
      wrap_pybind_function([](const py::tuple& shared) { return openreg::open_storage(unpack_shared(shared)); }),
      py::arg("shared"));
  module.def(
      "_release_storage",
      wrap_pybind_function([](const py::tuple& shared) { openreg::release_storage(unpack_shared(shared)); }),
      py::arg("shared"));
  module.def("_collect_shared", wrap_pybind_function(&openreg::collect_shared), py::arg("possible_receivers"));
  add_device_properties(module);
  for (const AddBindings add : all_bindings()) {
    add(module);
  }
  return module.release().ptr();
}
