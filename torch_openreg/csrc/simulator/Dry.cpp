#include "simulator/dry/Dry.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include "Bindings.h"
#include "simulator/RuntimeObserver.h"
#include "simulator/dry/Clock.h"
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

// `peaks`: the operations per second of each dtype; None is TensorFloat-32. `efficiencies`: in the order of KernelClass.
// `links`: in the order of LinkRates.
void start_clock(
    const std::vector<std::pair<std::optional<at::ScalarType>, double>>& peaks,
    const std::array<double, at::openreg::kKernelClasses>& efficiencies,
    double memory_bandwidth,
    double host_bandwidth,
    double peer_bandwidth,
    double kernel_latency,
    double launch_time,
    const std::array<double, 5>& links) {
  at::openreg::DeviceRates rates;
  for (const auto& [dtype, flops] : peaks) {
    rates.peak_flops[dtype ? static_cast<size_t>(*dtype) : at::openreg::kTensorFloat32] = flops;
  }
  rates.flop_efficiency = efficiencies;
  rates.memory_bandwidth = memory_bandwidth;
  rates.host_bandwidth = host_bandwidth;
  rates.peer_bandwidth = peer_bandwidth;
  rates.kernel_latency = kernel_latency;
  rates.launch_time = launch_time;
  rates.links = {links[0], links[1], links[2], links[3], links[4]};
  at::openreg::start_clock(rates);
}

py::dict clock_totals() {
  const at::openreg::ClockTotals totals = at::openreg::clock_totals();
  py::dict kernels;
  for (const auto& [name, each] : totals.kernels) {
    kernels[py::str(name)] = py::make_tuple(each.count, each.seconds, each.flops, each.bytes);
  }
  py::dict streams;
  for (const auto& [number, each] : totals.streams) {
    streams[py::int_(number)] = py::make_tuple(each.device, each.busy, each.idle_for_launch, each.idle_for_work);
  }
  py::dict found;
  found["seconds"] = totals.now;
  found["compute"] = totals.compute;
  found["memory"] = totals.memory;
  found["link"] = totals.link;
  found["latency"] = totals.latency;
  found["communication"] = totals.communication;
  found["exposed_communication"] = totals.exposed_communication;
  found["flops"] = totals.flops;
  found["peak_seconds"] = totals.peak_seconds;
  found["kernels"] = kernels;
  found["streams"] = streams;
  return found;
}

// For each device: the number of groups, and the bytes of their communicators.
std::map<int, std::pair<size_t, size_t>> communicators() {
  std::map<int, std::pair<size_t, size_t>> found;
  for (const auto& [device, memory] : c10d::openreg::communicator_memory()) {
    found.emplace(device, std::pair(memory.groups, memory.bytes));
  }
  return found;
}

// (line, device, size, free)
std::optional<std::tuple<std::string, int, size_t, size_t>> refused_communicator() {
  const auto refused = c10d::openreg::refused_communicator();
  return refused ? std::optional(std::tuple(refused->line, refused->device, refused->size, refused->free))
                 : std::nullopt;
}

void add_dry(py::module_& module) {
  module.def("_dry_start", wrap_pybind_function(&start_dry));
  module.def("_dry_reads", wrap_pybind_function(&dry_reads));
  module.def("_dry_assume_at", wrap_pybind_function(&at::openreg::assume_at));
  module.def("_dry_assume", wrap_pybind_function(&at::openreg::assume));
  module.def("_dry_start_world", wrap_pybind_function(&c10d::openreg::start_dry_world));
  module.def("_dry_set_ranks_of_next_group", wrap_pybind_function(&c10d::openreg::set_ranks_of_next_group));
  module.def("_dry_set_matmul_workspace", wrap_pybind_function(&at::openreg::set_matmul_workspace));
  module.def("_dry_set_context_memory", wrap_pybind_function(&at::openreg::set_context_memory));
  module.def("_dry_set_communicator_memory", wrap_pybind_function(&c10d::openreg::set_communicator_memory));
  module.def("_dry_communicators", wrap_pybind_function(&communicators));
  module.def("_dry_refused_communicator", wrap_pybind_function(&refused_communicator));
  module.def("_dry_start_clock", wrap_pybind_function(&start_clock));
  module.def("_dry_clock", wrap_pybind_function(&clock_totals));
}

const Bindings dry_bindings(&add_dry);

} // namespace
