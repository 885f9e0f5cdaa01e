#pragma once

#include <torch/library.h>

namespace at::openreg {

// Registers the structured kernels, as register_cpu_kernels() registers its operators.
void register_structured(torch::Library& m);

} // namespace at::openreg
