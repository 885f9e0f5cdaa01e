#pragma once

#include <torch/csrc/utils/pybind.h>

// What the Python code that torch.compile generates calls.
void add_inductor(pybind11::module_& module);
