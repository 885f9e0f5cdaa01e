// Graphs: the class of torch/csrc/cuda/Graph.cpp, which a CPU build of PyTorch does not compile.
#include "Graph.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/DeviceGraph.h"
#include "runtime/OpenRegGraphsC10Utils.h"

namespace py = pybind11;
using c10::openreg::DeviceGraph;
using torch::wrap_pybind_function;
using torch::wrap_pybind_function_no_gil;

namespace {

// Does not initialize the device.
bool is_current_stream_capturing() {
  return orMayCapture() && c10::openreg::capture_of(c10::openreg::getCurrentOpenRegStream()) != 0;
}

at::GraphCaptureMode capture_mode(const std::string& name) {
  if (name == "global") {
    return at::GraphCaptureMode::Global;
  }
  if (name == "thread_local") {
    return at::GraphCaptureMode::ThreadLocal;
  }
  TORCH_CHECK(
      name == "relaxed", "Unknown capture error mode. Expected `global`, `thread_local`, or `relaxed`, got ", name);
  return at::GraphCaptureMode::Relaxed;
}

void capture_begin(DeviceGraph& graph, std::optional<at::MempoolId_t> pool, const std::string& mode) {
  graph.capture_begin(pool.value_or(at::MempoolId_t(0, 0)), capture_mode(mode));
}

DeviceGraph* currently_capturing() {
  return &DeviceGraph::currently_capturing();
}

uintptr_t raw_graph(const DeviceGraph& graph) {
  TORCH_CHECK(
      graph.keeps_graph(),
      "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized with keep_graph=true");
  TORCH_CHECK(
      graph.graph() != nullptr, "You cannot access the raw cudaGraph_t instance until capture_end() has been called");
  return reinterpret_cast<uintptr_t>(graph.graph());
}

uintptr_t raw_exec(const DeviceGraph& graph) {
  TORCH_CHECK(
      graph.exec() != nullptr,
      "You cannot access the raw cudaGraphExec_t instance until instantiate() has been called");
  return reinterpret_cast<uintptr_t>(graph.exec());
}

} // namespace

void add_graph(py::module_& module) {
  module.def("_is_current_stream_capturing", wrap_pybind_function(&is_current_stream_capturing));
  module.def("_graph_pool_handle", wrap_pybind_function(&DeviceGraph::new_pool));
  py::class_<DeviceGraph>(module, "_CUDAGraph")
      .def(
          py::init([](bool keep_graph) { return std::make_unique<DeviceGraph>(at::GraphImplArgs{keep_graph}); }),
          py::arg("keep_graph") = false)
      .def("register_generator_state", wrap_pybind_function(&DeviceGraph::register_generator_state))
      .def(
          "capture_begin",
          wrap_pybind_function_no_gil(&capture_begin),
          py::arg("pool") = py::none(),
          py::arg("capture_error_mode") = "global")
      .def("capture_end", wrap_pybind_function_no_gil(&DeviceGraph::capture_end))
      // Since 2.14 PyTorch's class in Python ends a capture with these, and instantiates the graph itself.
      .def("capture_end_pre", wrap_pybind_function_no_gil(&DeviceGraph::capture_end_pre))
      .def("capture_end_post", wrap_pybind_function_no_gil(&DeviceGraph::capture_end_post))
      .def_property_readonly("_has_graph_exec", [](const DeviceGraph& graph) { return graph.exec() != nullptr; })
      .def("instantiate", wrap_pybind_function_no_gil(&DeviceGraph::instantiate))
      .def("replay", wrap_pybind_function_no_gil(&DeviceGraph::replay))
      .def("reset", wrap_pybind_function_no_gil(&DeviceGraph::reset))
      .def("pool", wrap_pybind_function(&DeviceGraph::pool))
      .def("pools", wrap_pybind_function(&DeviceGraph::pools))
      .def("_retain_pool", wrap_pybind_function(&DeviceGraph::retain_pool))
      .def_static(
          "get_currently_capturing_graph",
          wrap_pybind_function(&currently_capturing),
          py::return_value_policy::reference)
      .def("begin_capture_to_if_node", wrap_pybind_function_no_gil(&DeviceGraph::begin_conditional))
      .def("end_capture_to_conditional_node", wrap_pybind_function_no_gil(&DeviceGraph::end_conditional))
      .def("enable_debug_mode", wrap_pybind_function(&DeviceGraph::enable_debug_mode))
      .def("debug_dump", wrap_pybind_function_no_gil(&DeviceGraph::debug_dump), py::arg("debug_path"))
      .def("raw_cuda_graph", wrap_pybind_function(&raw_graph))
      .def("raw_cuda_graph_exec", wrap_pybind_function(&raw_exec));
}
