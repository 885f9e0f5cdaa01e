#pragma once

#include <torch/library.h>

// The route of an operator: the way by which a call reaches the loop that computes.
namespace at::openreg {

// Attaches the name of a route to a kernel, with the place of the registration. `torch-openreg ops` lists the name.
// PyTorch prints the text in its dispatch tables: "registered at csrc/simulator/borrowed/routes/OpenRegCpuKernels.cpp:<line>
// as unboxed".
inline torch::CppFunction routed(
    torch::CppFunction&& kernel, const char* route, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return std::move(kernel).debug(c10::str("registered at ", file, ":", line, " as ", route));
}

} // namespace at::openreg
