#pragma once

#include <ATen/core/Tensor.h>

// Elementwise operators that the device computes in its own way. Registered in ../OpenRegExtra.cpp.
namespace at::openreg {

Tensor& zero_(Tensor& self);

} // namespace at::openreg
