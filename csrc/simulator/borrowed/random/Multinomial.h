#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "simulator/borrowed/random/PhiloxGenerator.h"

namespace at::openreg {

// Fills the output of `iter` with exponentially distributed values.
void fill_with_exponential(TensorIteratorBase& iter, double lambda, PhiloxGenerator& generator);

// multinomial() on CPU tensors.
Tensor multinomial(const Tensor& self, int64_t count, bool replacement, std::optional<Generator> generator);
Tensor& multinomial_out(
    const Tensor& self, int64_t count, bool replacement, std::optional<Generator> generator, Tensor& out);

} // namespace at::openreg
