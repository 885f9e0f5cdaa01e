#pragma once

#include <pybind11/pybind11.h>

// Adds the class of graphs from which PyTorch derives torch.cuda.CUDAGraph.
void add_graph(pybind11::module_& module);

// Adds the functions that the graph trees of torch.compile call.
void add_graph_trees(pybind11::module_& module);
