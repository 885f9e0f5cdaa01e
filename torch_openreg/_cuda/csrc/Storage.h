#pragma once

#include <pybind11/pybind11.h>

// Adds the functions of storages, legacy tensor types and DLPack that PyTorch's Python calls in a build with CUDA.
void add_storage(pybind11::module_& module);
