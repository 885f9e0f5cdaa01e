#pragma once

#include <torch/library.h>

namespace at::openreg {

// Registers the operators that take the unboxed route. `m` registers operators of aten for the device's dispatch key.
// This is a function, and not a TORCH_LIBRARY_IMPL block, because it must run before the fallback is registered for the
// operators that have no other kernel. It names no device type, so a library for another type has the same object.
void register_cpu_kernels(torch::Library& m);

} // namespace at::openreg
