#pragma once

#include <pybind11/pybind11.h>

void add_storage(pybind11::module_& module);
