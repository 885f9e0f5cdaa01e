#include <openreg_faults.h>
#include <torch/csrc/Exceptions.h>

#include <tuple>

#include "Bindings.h"
#include "runtime/OpenRegException.h"
#include "simulator/RuntimeObserver.h"
#include "simulator/WaitCount.h"

using torch::wrap_pybind_function;

namespace {

uintptr_t inject_fault(
    unsigned points,
    int device,
    std::pair<uint64_t, uint64_t> calls,
    size_t min_size,
    std::pair<double, uint64_t> chance,
    int action,
    int error,
    int duration,
    double amount,
    const std::string& text) {
  const orFault what{
      .points = points,
      .device = device,
      .first = calls.first,
      .last = calls.second,
      .minSize = min_size,
      .probability = chance.first,
      .seed = chance.second,
      .action = static_cast<orFaultAction>(action),
      .error = static_cast<orError_t>(error),
      .duration = static_cast<orFaultDuration>(duration),
      .amount = amount,
      .text = text.c_str()};
  c10::openreg::observe_runtime();
  orInjectedFault_t fault = nullptr;
  OPENREG_CHECK(orFaultInject(&fault, &what));
  return reinterpret_cast<uintptr_t>(fault);
}

std::pair<uint64_t, uint64_t> count_fault(uintptr_t fault) {
  uint64_t seen = 0;
  uint64_t fired = 0;
  OPENREG_CHECK(orFaultCount(reinterpret_cast<orInjectedFault_t>(fault), &seen, &fired));
  return {seen, fired};
}

void remove_fault(uintptr_t fault) {
  OPENREG_CHECK(orFaultRemove(reinterpret_cast<orInjectedFault_t>(fault)));
}

void add_faults(pybind11::module_& module) {
  module.def("_inject_fault", wrap_pybind_function(&inject_fault));
  module.def("_count_fault", wrap_pybind_function(&count_fault));
  module.def("_remove_fault", wrap_pybind_function(&remove_fault));
  module.def("_count_waits", wrap_pybind_function(&c10::openreg::count_waits));
  module.def("_wait_count", wrap_pybind_function(&c10::openreg::wait_count));
}

const Bindings fault_bindings(&add_faults);

} // namespace
