#pragma once

#include <torch/csrc/utils/pybind.h>

// torch_openreg._C: what torch.openreg.memory needs of the allocators and torch.accelerator does not offer. Glue only, as
// Module.cpp.
void add_memory(pybind11::module_& module);
