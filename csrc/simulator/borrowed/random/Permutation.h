#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/core/Tensor.h>

#include "simulator/borrowed/random/PhiloxGenerator.h"

namespace at::openreg {

// Fills the output of `iter` with integers in [base, base + range).
void fill_with_range(TensorIteratorBase& iter, uint64_t range, int64_t base, PhiloxGenerator& generator);

// randperm() on CPU tensors: sorts 0, 1, ... by random keys.
Tensor& permutation_out(int64_t n, std::optional<Generator> generator, Tensor& out);

} // namespace at::openreg
