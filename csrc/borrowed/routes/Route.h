#pragma once

#include <torch/library.h>

// The route of an operator: the way by which it reaches the loop that computes it.
namespace at::openreg {

// A kernel with its route, a name that `torch-openreg ops` lists. PyTorch keeps the text beside the kernel and prints
// it in its dispatch tables: "registered at csrc/borrowed/routes/OpenRegCpuKernels.cpp:30 as unboxed".
inline torch::CppFunction routed(
    torch::CppFunction&& kernel, const char* route, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return std::move(kernel).debug(c10::str("registered at ", file, ":", line, " as ", route));
}

} // namespace at::openreg
