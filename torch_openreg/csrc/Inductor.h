#pragma once

#include <torch/csrc/utils/pybind.h>

// The functions that generated Python code of torch.compile calls.
void add_inductor(pybind11::module_& module);
