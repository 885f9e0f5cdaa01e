#include "simulator/dry/Dry.h"

#include <torch/csrc/Exceptions.h>

#include "Bindings.h"
#include "simulator/RuntimeObserver.h"
#include "simulator/transport/DryEngine.h"

namespace py = pybind11;
using torch::wrap_pybind_function;

namespace {

// (line, how, count) of each at::openreg::AssumedRead.
std::vector<std::tuple<std::string, std::string, uint64_t>> dry_reads() {
  std::vector<std::tuple<std::string, std::string, uint64_t>> rows;
  for (const at::openreg::AssumedRead& each : at::openreg::assumed_reads()) {
    rows.emplace_back(each.line, each.how, each.count);
  }
  return rows;
}

void start_dry(size_t limit) {
  c10::openreg::observe_runtime();
  at::openreg::start_dry(limit);
}

void add_dry(py::module_& module) {
  module.def("_dry_start", wrap_pybind_function(&start_dry));
  module.def("_dry_reads", wrap_pybind_function(&dry_reads));
  module.def("_dry_start_world", wrap_pybind_function(&c10d::openreg::start_dry_world));
}

const Bindings dry_bindings(&add_dry);

} // namespace
