#include "simulator/triton/InterpretedKernel.h"

#include <torch/csrc/Exceptions.h>

#include <memory>
#include <set>

#include "Bindings.h"
#include "runtime/OpenRegFunctions.h"

namespace py = pybind11;
using at::openreg::Interpretation;
using at::openreg::InterpretedAccess;
using torch::wrap_pybind_function;

namespace {

// (address, bytes of an element, elements, bytes from one to the next, orAccess)
using Row = std::tuple<uintptr_t, int64_t, int64_t, int64_t, unsigned>;

std::vector<InterpretedAccess> accesses_of(const std::vector<Row>& rows) {
  std::vector<InterpretedAccess> accesses;
  for (const auto& [address, size, count, step, access] : rows) {
    accesses.push_back({reinterpret_cast<const void*>(address), size, count, step, access});
  }
  return accesses;
}

bool run_interpreted(int64_t device, const std::string& name, const std::vector<Row>& whole, const py::function& run) {
  static auto* const names = new std::set<std::string>(); // guarded by Python's interpreter lock
  const char* const kept_name = names->insert(name).first->c_str();
  c10::openreg::check_device_index(device);
  // A graph keeps the function, and destroys it on any thread.
  const std::shared_ptr<py::function> kept(new py::function(run), [](py::function* function) {
    if (Py_IsInitialized()) {
      const py::gil_scoped_acquire gil;
      delete function;
    }
  });
  const py::gil_scoped_release no_gil;
  return at::openreg::run_interpreted(
      static_cast<c10::DeviceIndex>(device), kept_name, accesses_of(whole), [kept](Interpretation how) {
        const py::gil_scoped_acquire gil;
        try {
          const bool rehearses = how == Interpretation::Rehearses;
          return accesses_of((*kept)(rehearses || how == Interpretation::Tells, rehearses).cast<std::vector<Row>>());
        } catch (py::error_already_set& error) { // a replay leaves the exception to another thread
          error.restore();
          python_error persistent;
          persistent.persist();
          throw persistent;
        }
      });
}

// The address at which a kernel reads and writes the bytes at `address`.
uintptr_t kernel_address(uintptr_t address) {
  return reinterpret_cast<uintptr_t>(orGetKernelPointer(reinterpret_cast<const void*>(address)));
}

// The begin and the size of the device library's allocation around `address`, or (0, 0).
std::pair<uintptr_t, size_t> allocation_around(uintptr_t address) {
  orPointerAttributes attributes{};
  OPENREG_CHECK(orPointerGetAttributes(&attributes, reinterpret_cast<const void*>(address)));
  return attributes.type == orMemoryTypeDevice && attributes.base
             ? std::pair{reinterpret_cast<uintptr_t>(attributes.base), attributes.size}
             : std::pair<uintptr_t, size_t>{};
}

void add_triton(py::module_& module) {
  module.def("_run_interpreted", wrap_pybind_function(&run_interpreted));
  module.def("_kernel_address", wrap_pybind_function(&kernel_address));
  module.def("_allocation_around", wrap_pybind_function(&allocation_around));
}

const Bindings triton_bindings(&add_triton);

} // namespace
