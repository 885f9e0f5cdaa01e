#pragma once

#include <torch/csrc/utils/pybind.h>

// torch_openreg._C: the functions of the allocators that torch.openreg.memory needs and torch.accelerator does not
// have. Glue only: see the rule in Module.cpp.
void add_memory(pybind11::module_& module);
