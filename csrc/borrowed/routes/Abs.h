#pragma once

#include <ATen/core/Tensor.h>

namespace at::openreg {

Tensor abs(const Tensor& self);

} // namespace at::openreg
