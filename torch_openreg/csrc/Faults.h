#pragma once

#include <torch/csrc/utils/pybind.h>

// torch_openreg._C: the functions behind torch_openreg.openreg.faults. Glue only: see the rule in Module.cpp.
void add_faults(pybind11::module_& module);
