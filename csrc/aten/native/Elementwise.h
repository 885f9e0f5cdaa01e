#pragma once

#include <ATen/core/Tensor.h>

// zero_(): a memset on the current stream if the tensor is small and dense, else fill_(0). Registered in
// ../OpenRegExtra.cpp.
namespace at::openreg {

Tensor& zero_(Tensor& self);

} // namespace at::openreg
