#pragma once

#include <torch/csrc/utils/pybind.h>

// The functions of torch_openreg._C behind torch_openreg.openreg.models.
void add_models(pybind11::module_& module);
