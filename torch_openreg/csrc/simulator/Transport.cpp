#include "simulator/transport/GlooEngine.h"

#include <pybind11/chrono.h>

#include "Bindings.h"
#include "runtime/OpenRegTorchVersion.h"

namespace py = pybind11;

// Lets C++ make gloo groups, through PyTorch's Python module.
namespace {

c10::intrusive_ptr<c10d::Backend> make_gloo(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::milliseconds timeout) {
  const py::gil_scoped_acquire gil;
  py::object gloo = py::module_::import("torch.distributed").attr("ProcessGroupGloo")(store, rank, size, timeout);
#if !OPENREG_TORCH_AT_LEAST(2, 14) // later versions begin at 0 on every rank, and warn that the call does nothing
  gloo.attr("_set_sequence_number_for_group")();
#endif
  return gloo.cast<c10::intrusive_ptr<c10d::Backend>>();
}

const Bindings transport_bindings([](py::module_&) { c10d::openreg::set_make_gloo(&make_gloo); });

} // namespace
