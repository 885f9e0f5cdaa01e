#pragma once

#include <ATen/core/Tensor.h>

// An example of a backend's own kernel in the place of PyTorch's composition: for floating-point tensors, `abs` calls
// its stub directly.
namespace at::openreg {

Tensor abs(const Tensor& self);

} // namespace at::openreg
