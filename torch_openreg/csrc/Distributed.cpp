#include <pybind11/chrono.h>

#include "Bindings.h"
#include "distributed/InterpreterUse.h"
#include "distributed/ProcessGroupOCCL.h"

namespace py = pybind11;
using c10d::openreg::ProcessGroupOCCL;

namespace {

void init_distributed() {
  py::module_ module = py::module_::import("torch_openreg._C");
  if (py::hasattr(module, "ProcessGroupOCCL")) {
    return;
  }
  py::module_::import("torch._C._distributed_c10d");
  py::class_<ProcessGroupOCCL, c10d::Backend, c10::intrusive_ptr<ProcessGroupOCCL>> group(module, "ProcessGroupOCCL");
  using Config = ProcessGroupOCCL::Config;
  py::class_<Config>(group, "NCCLConfig")
      .def(py::init<>())
      .def_readwrite("blocking", &Config::blocking)
      .def_readwrite("cga_cluster_size", &Config::cga_cluster_size)
      .def_readwrite("min_ctas", &Config::min_ctas)
      .def_readwrite("max_ctas", &Config::max_ctas)
      .def_readwrite("split_share", &Config::split_share)
      .def_readwrite("traffic_class", &Config::traffic_class)
      .def_readwrite("net_name", &Config::net_name)
      .def("__copy__", [](const Config& self) { return Config(self); })
      .def("__deepcopy__", [](const Config& self, const py::dict&) { return Config(self); }, py::arg("memo"));
  py::class_<ProcessGroupOCCL::Options, c10d::Backend::Options, c10::intrusive_ptr<ProcessGroupOCCL::Options>>(
      group, "Options", py::dynamic_attr()) // PyTorch sets split_from and split_color for the name "nccl"
      .def(
          py::init([](bool is_high_priority_stream) {
            auto options = c10::make_intrusive<ProcessGroupOCCL::Options>();
            options->is_high_priority_stream = is_high_priority_stream;
            return options;
          }),
          py::arg("is_high_priority_stream") = false)
      .def_readwrite("is_high_priority_stream", &ProcessGroupOCCL::Options::is_high_priority_stream)
      .def_readwrite("config", &ProcessGroupOCCL::Options::config)
      .def("__copy__", [](const ProcessGroupOCCL::Options& self) { return ProcessGroupOCCL::Options(self); })
      .def( // split_group() copies the options of the parent
          "__deepcopy__",
          [](const ProcessGroupOCCL::Options& self, const py::dict&) { return ProcessGroupOCCL::Options(self); },
          py::arg("memo"));
  using OptionsPtr = c10::intrusive_ptr<ProcessGroupOCCL::Options>;
  group
      // The parameters of ProcessGroupNCCL.
      .def(
          py::init([](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, const OptionsPtr& options) {
            return c10::make_intrusive<ProcessGroupOCCL>(store, rank, size, options);
          }),
          py::arg("store"),
          py::arg("rank"),
          py::arg("size"),
          py::arg("options"),
          py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &ProcessGroupOCCL::options)
      // Ranks outside of the new group call this function, as with ProcessGroupNCCL. Here it does nothing.
      .def("perform_nocolor_split", [](ProcessGroupOCCL&, c10::Device) {})
      .def("comm_split_count", &ProcessGroupOCCL::split_count)
      // NCCL sends faster from memory that is registered with it. Here all memory is alike.
      .def(
          "register_mem_pool", [](ProcessGroupOCCL&, const py::object& /*pool*/) {}, py::arg("pool"))
      .def(
          "deregister_mem_pool", [](ProcessGroupOCCL&, const py::object& /*pool*/) {}, py::arg("pool"))
      // Raises AttributeError, so that hasattr() returns False. The same property of the base class Backend raises
      // RuntimeError.
      .def_property_readonly(
          "mem_allocator",
          [](const ProcessGroupOCCL&) -> py::object {
            throw py::attribute_error("The backend occl has no allocator of its own");
          })
      .def("_set_default_timeout", &ProcessGroupOCCL::setTimeout, py::arg("timeout"))
      .def("_add_ephemeral_timeout", &ProcessGroupOCCL::addEphemeralTimeout, py::arg("timeout"))
      // NCCL combines the calls between these two functions. Here they do nothing.
      .def("_group_start", [](ProcessGroupOCCL&) {})
      .def("_group_end", [](ProcessGroupOCCL&) {})
      .def("abort", &ProcessGroupOCCL::abort, py::call_guard<py::gil_scoped_release>())
      .def("_shutdown", &ProcessGroupOCCL::shutdown, py::call_guard<py::gil_scoped_release>());
}

// _init_distributed() adds ProcessGroupOCCL. That is a second step, because the base class exists in Python only after
// torch.distributed was imported.
void add_distributed(py::module_& module) {
  module.def("_init_distributed", &init_distributed);
  // At the import, and not with the first group: handlers that a program registers later run earlier, and may use
  // groups.
  py::module_::import("atexit").attr("register")(
      py::cpp_function(&c10d::openreg::end_interpreter_uses, py::call_guard<py::gil_scoped_release>()));
}

const Bindings distributed_bindings(&add_distributed);

} // namespace
