#pragma once

#include <ATen/core/Tensor.h>

#include "simulator/borrowed/random/PhiloxGenerator.h"

namespace at::openreg {

// _fused_dropout() on CPU tensors: keeps each element with the probability `keep`, and divides it by `keep`. The second
// result has a 1 for each element that was kept.
std::tuple<Tensor, Tensor> fused_dropout(const Tensor& self, double keep, std::optional<Generator> generator);

} // namespace at::openreg
