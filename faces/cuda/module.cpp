// What the bindings of the face "cuda" have beside those of the device: what PyTorch's own Python asks of a build with
// CUDA, and what a CPU build of PyTorch compiled out of its C++. Same rule as in torch_openreg/csrc/Module.cpp: glue only.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/utils/pybind.h>

#include <openreg.h>

#include "CudaHooks.h"

namespace py = pybind11;
using torch::wrap_pybind_function;

extern "C" PyObject* openreg_init_module();

PyMODINIT_FUNC PyInit__C() {
  orReadCudaVariables();
  PyObject* const made = openreg_init_module();
  auto module = py::reinterpret_borrow<py::module_>(made);
  module.attr("_cuda_hooks_failure") = c10::openreg::cuda_hooks_failure;
  return made;
}
