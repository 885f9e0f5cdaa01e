#pragma once

#include <ATen/core/Tensor.h>

namespace at::openreg {

// Sums of bool and integer tensors. The CPU's kernel first copies all elements to the type of the sum, which needs eight
// times the memory of a mask. CUDA's kernel converts each element when it reads it. So a large tensor is added up in
// parts, and the copies stay small. Integers have the same sum in every order; sums of floating-point numbers have not,
// so the CPU's kernel adds them up at once.

// Whether the sum of `self` in the type `dtype` is added up in parts.
bool is_summed_in_parts(const Tensor& self, std::optional<ScalarType> dtype);

// The sum over `dims`. No dimensions: over all.
Tensor sum_in_parts(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype);

} // namespace at::openreg
