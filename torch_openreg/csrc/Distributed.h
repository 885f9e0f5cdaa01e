#pragma once

#include <torch/csrc/utils/pybind.h>

// Adds _init_distributed(), which adds ProcessGroupOCCL. That is a second step, because the base class exists in Python
// only after torch.distributed was imported.
void add_distributed(pybind11::module_& module);
