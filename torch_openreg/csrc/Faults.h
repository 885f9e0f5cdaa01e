#pragma once

#include <torch/csrc/utils/pybind.h>

// torch_openreg._C: faults on demand, for torch_openreg.openreg.faults. Glue only, as Module.cpp.
void add_faults(pybind11::module_& module);
