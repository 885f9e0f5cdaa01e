#pragma once

#include <ATen/core/Tensor.h>

#include "simulator/borrowed/random/PhiloxGenerator.h"

namespace at::openreg {

// bernoulli_() with a probability for each element, on CPU tensors.
void fill_with_probabilities(const Tensor& self, const Tensor& p, PhiloxGenerator& generator);

} // namespace at::openreg
