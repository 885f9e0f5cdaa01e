#pragma once

#include <pybind11/pybind11.h>

// Adds the class of graphs from which PyTorch derives torch.cuda.CUDAGraph.
void add_graph(pybind11::module_& module);
