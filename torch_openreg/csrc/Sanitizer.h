#pragma once

#include <torch/csrc/utils/pybind.h>

void add_sanitizer(pybind11::module_& module);
