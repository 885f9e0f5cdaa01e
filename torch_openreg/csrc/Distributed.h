#pragma once

#include <torch/csrc/utils/pybind.h>

// Adds _init_distributed(), which adds ProcessGroupOCCL: its base class exists in Python only after torch.distributed does.
void add_distributed(pybind11::module_& module);
