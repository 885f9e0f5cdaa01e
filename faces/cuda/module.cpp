// The bindings that only the face "cuda" (the device under the type cuda) has. PyTorch's own Python calls functions
// like these in a build with CUDA, and a CPU build does not compile them. Same rule as in
// torch_openreg/csrc/Module.cpp: no logic here.
#include <c10/core/StreamGuard.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <thread>

#include "CudaHooks.h"
#include "Storage.h"
#include "openreg_launch.h"
#include "runtime/OpenRegStream.h"
#include "runtime/memory/OpenRegDeviceAllocator.h"

namespace py = pybind11;
namespace openreg = c10::openreg;
using c10::MempoolId_t;
using openreg::device_allocator;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

extern "C" PyObject* openreg_init_module();

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

// The number that programs for CUDA use as cudaStream_t. 0 is the default stream.
uintptr_t stream_pointer(const c10::Stream& stream) {
  return stream.id() == 0 ? 0 : reinterpret_cast<uintptr_t>(openreg::stream_handle(stream));
}

c10::Stream stream_of_pointer(uintptr_t pointer, c10::DeviceIndex device) {
  return openreg::stream_of_handle(reinterpret_cast<orStream_t>(pointer), device);
}

int stream_priority(const c10::Stream& stream) {
  int priority = 0;
  OPENREG_CHECK(orStreamGetPriority(openreg::stream_handle(stream), &priority));
  return priority;
}

std::pair<int, int> stream_priority_range() {
  int least = 0;
  int greatest = 0;
  OPENREG_CHECK(orDeviceGetStreamPriorityRange(&least, &greatest));
  return {least, greatest};
}

// torch.Event.elapsed_time accepts only an object of exactly that class.
double elapsed_time(const py::object& start, const py::object& end) {
  TORCH_CHECK_TYPE(THPEvent_Check(start.ptr()) && THPEvent_Check(end.ptr()), "elapsed_time(): expected an Event");
  const auto event = [](const py::object& object) -> c10::Event& {
    return reinterpret_cast<THPEvent*>(object.ptr())->event;
  };
  return event(start).elapsedTime(event(end));
}

// Launches a kernel that sleeps for the time of `cycles` cycles of the device's clock.
void sleep_cycles(int64_t cycles) {
  orDeviceProp properties{};
  const c10::DeviceIndex device = openreg::current_device();
  OPENREG_CHECK(orGetDeviceProperties(&properties, device));
  const std::chrono::duration<double, std::milli> time(static_cast<double>(cycles) / properties.clockRate);
  const orKernelInfo info{"sleep", {}};
  OPENREG_CHECK(
      orLaunchKernel(openreg::current_stream_handle(device), info, [time] { std::this_thread::sleep_for(time); }));
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
      device, id, [current = openreg::current_stream(device)](const c10::Stream& stream) { return stream == current; });
}

} // namespace

PyMODINIT_FUNC PyInit__C() {
  orReadCudaVariables();
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
  module.def("_sleep", wrap_pybind_function_no_gil(&sleep_cycles));
  module.def("_allocate_on_stream", wrap_pybind_function(&allocate_on_stream));
  module.def("_begin_allocate_to_pool", wrap_pybind_function(&begin_allocate_to_pool));
  module.def("_begin_allocate_current_stream_to_pool", wrap_pybind_function(&begin_allocate_current_stream_to_pool));
  add_storage(module);
  return made;
}
