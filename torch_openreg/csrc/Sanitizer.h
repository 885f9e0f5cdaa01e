#pragma once

#include <torch/csrc/utils/pybind.h>

// Adds the functions behind torch_openreg.openreg.sanitizer to torch_openreg._C, and lets reports name lines of Python.
void add_sanitizer(pybind11::module_& module);
