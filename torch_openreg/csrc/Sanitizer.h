#pragma once

#include <torch/csrc/utils/pybind.h>

// torch_openreg._C: the functions behind torch_openreg.openreg.sanitizer, and the lines of Python in its reports.
void add_sanitizer(pybind11::module_& module);
