// The bindings that only devices of type cuda have. PyTorch's own Python calls functions
// like these in a build with CUDA, and a CPU build does not compile them. Same rule as in
// torch_openreg/csrc/Module.cpp: no logic here.
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <string>
#include <thread>

#include "CudaAllocator.h"
#include "CudaGuard.h"
#include "CudaHooks.h"
#include "Forward.h"
#include "Graph.h"
#include "Storage.h"
#include "openreg_graph.h"
#include "openreg_ipc.h"
#include "openreg_launch.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace py = pybind11;
namespace openreg = c10::openreg;
using c10::MempoolId_t;
using openreg::device_allocator;
using openreg::stream_of_pointer;
using openreg::stream_pointer;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

extern "C" PyObject* openreg_init_module();
extern const orDeviceIdentity cuda_device_identity; // DeviceLibrary.cpp

namespace {

// As device_count(), but raises if the devices cannot be counted, for example if OPENREG_DEVICE_COUNT is not valid.
int count_devices() {
  int count = 0;
  OPENREG_CHECK(orGetDeviceCount(&count));
  return count;
}

std::string error_string(int code) {
  return orGetErrorString(static_cast<orError_t>(code));
}

// ---- streams and events

int stream_priority(const c10::Stream& stream) {
  return openreg::OpenRegStream(stream).priority();
}

std::pair<int, int> stream_priority_range() {
  int least = 0;
  int greatest = 0;
  OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  return {least, greatest};
}

c10::Event& event_of(const py::object& object) {
  TORCH_CHECK_TYPE(THPEvent_Check(object.ptr()), "expected an Event");
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

// torch.Event.elapsed_time accepts only an object of exactly that class.
double elapsed_time(const py::object& start, const py::object& end) {
  return event_of(start).elapsedTime(event_of(end));
}

// Makes `event` stand for a new event of the device library, which other processes can open.
void create_interprocess_event(const py::object& event, c10::DeviceIndex device) {
  const bool timing = event_of(event).flag() == c10::EventFlag::BACKEND_DEFAULT;
  orEvent_t handle = nullptr;
  const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
  OPENREG_CHECK(orIpcEventCreate(&handle, timing ? orEventEnableTiming : orEventDisableTiming));
  openreg::set_handle(event_of(event), handle, device);
}

// The calls of an event with external=True in a capture: each replay records the event, or waits for it.
void record_external(const py::object& event, const c10::Stream& stream) {
  if (!event_of(event).eventId()) {
    const bool timing = event_of(event).flag() == c10::EventFlag::BACKEND_DEFAULT;
    openreg::set_handle(
        event_of(event),
        openreg::create_event(stream, timing ? orEventEnableTiming : orEventDisableTiming),
        stream.device_index());
  }
  OPENREG_CHECK(orEventRecordWithFlags(
      static_cast<orEvent_t>(event_of(event).eventId()),
      openreg::OpenRegStream(stream).stream(),
      orEventRecordExternal));
}

void wait_external(const py::object& event, const c10::Stream& stream) {
  OPENREG_CHECK(orStreamWaitEvent(
      openreg::OpenRegStream(stream).stream(), static_cast<orEvent_t>(event_of(event).eventId()), orEventWaitExternal));
}

py::bytes event_ipc_handle(const py::object& event) {
  orIpcEventHandle_t handle{};
  OPENREG_CHECK(orIpcGetEventHandle(&handle, static_cast<orEvent_t>(event_of(event).eventId())));
  return py::bytes(handle.reserved, sizeof(handle.reserved));
}

// Opens another process's event by its handle. `event`, a new event of this process, then stands for the opened one.
void open_event(const py::object& event, c10::DeviceIndex device, const std::string& handle) {
  orIpcEventHandle_t content{};
  TORCH_CHECK(
      handle.size() == sizeof(content.reserved),
      "cudaIpcEventHandle_t expects byte-like object of size ",
      sizeof(content.reserved),
      ", but got ",
      handle.size());
  handle.copy(content.reserved, sizeof(content.reserved));
  orEvent_t opened = nullptr;
  const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, device));
  OPENREG_CHECK(orIpcOpenEventHandle(&opened, content));
  openreg::set_handle(event_of(event), opened, device);
}

// Launches a kernel that sleeps for the time of `cycles` cycles of the device's clock.
void sleep_cycles(int64_t cycles) {
  orDeviceProp properties{};
  const c10::DeviceIndex device = openreg::current_device();
  OPENREG_CHECK(orGetDeviceProperties(&properties, device));
  const std::chrono::duration<double, std::milli> time(static_cast<double>(cycles) / properties.clockRate);
  const orKernelInfo info{"sleep", {}};
  OPENREG_CHECK(orLaunchKernel(
      openreg::getCurrentOpenRegStream(device).stream(), info, [time] { std::this_thread::sleep_for(time); }));
}

// ---- memory

uintptr_t allocate_on_stream(size_t size, uintptr_t stream) {
  const c10::StreamGuard guard(stream_of_pointer(stream, openreg::current_device()));
  return reinterpret_cast<uintptr_t>(device_allocator()->raw_allocate(size));
}

void begin_allocate_to_pool(c10::DeviceIndex device, MempoolId_t id) {
  device_allocator()->begin_allocate_to_pool(device, id, [](const c10::Stream&) { return true; });
}

void begin_allocate_current_stream_to_pool(c10::DeviceIndex device, MempoolId_t id) {
  device_allocator()->begin_allocate_to_pool(
      device, id, [current = openreg::getCurrentOpenRegStream(device)](const c10::Stream& stream) {
        return stream == current;
      });
}

} // namespace

PyMODINIT_FUNC PyInit__C() {
  orSetDeviceIdentity(&cuda_device_identity);
  PyObject* const made = openreg_init_module();
  auto module = py::reinterpret_borrow<py::module_>(made);
  module.attr("_cuda_hooks_failure") = openreg::cuda_hooks_failure;
  module.def("_count_devices", wrap_pybind_function(&count_devices));
  module.def("_error_string", &error_string);
  module.def("_stream_pointer", wrap_pybind_function(&stream_pointer));
  module.def("_stream_of_pointer", wrap_pybind_function(&stream_of_pointer));
  module.def("_stream_priority", wrap_pybind_function(&stream_priority));
  module.def("_stream_priority_range", wrap_pybind_function(&stream_priority_range));
  module.def("_host_register", wrap_pybind_function([](uintptr_t pointer, size_t size) {
               return int(orHostRegister(reinterpret_cast<void*>(pointer), size));
             }));
  module.def("_host_unregister", wrap_pybind_function([](uintptr_t pointer) {
               return int(orHostUnregister(reinterpret_cast<void*>(pointer)));
             }));
  module.def("_elapsed_time", wrap_pybind_function(&elapsed_time));
  module.def("_create_interprocess_event", wrap_pybind_function(&create_interprocess_event));
  module.def("_record_external", wrap_pybind_function(&record_external));
  module.def("_wait_external", wrap_pybind_function(&wait_external));
  module.def("_event_ipc_handle", wrap_pybind_function(&event_ipc_handle));
  module.def("_open_event", wrap_pybind_function(&open_event));
  module.def("_sleep", wrap_pybind_function_no_gil(&sleep_cycles));
  module.def("_allocate_on_stream", wrap_pybind_function(&allocate_on_stream));
  module.def("_begin_allocate_to_pool", wrap_pybind_function(&begin_allocate_to_pool));
  module.def("_begin_allocate_current_stream_to_pool", wrap_pybind_function(&begin_allocate_current_stream_to_pool));
  add_graph(module);
  add_graph_trees(module);
  add_storage(module);
  openreg::forward_stubs();
  openreg::set_cuda_allocator();
  return made;
}
