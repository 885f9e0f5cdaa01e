#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/sum_ops.h>

#include "aten/native/InlineOrQueued.h"
#include "aten/native/NondeterminismChecks.h"
#include "simulator/borrowed/Fallback.h"

namespace at::openreg {

// Sums of bool and integer tensors. The CPU's kernel first copies all elements to the type of the sum, which needs eight
// times the memory of a mask. CUDA's kernel converts each element when it reads it. So a large tensor is added up in
// parts, and the copies stay small. Integers have the same sum in every order; sums of floating-point numbers have not,
// so the CPU's kernel adds them up at once.

// Whether the sum of `self` in the type `dtype` is added up in parts.
bool is_summed_in_parts(const Tensor& self, std::optional<ScalarType> dtype);

// The sum over `dims`. No dimensions: over all.
Tensor sum_in_parts(const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype);

// `self` in the type `dtype`, or in one with more digits, with 0 in place of each NaN. A complex number is NaN if one of
// its parts is.
Tensor without_nan(const Tensor& self, ScalarType dtype);

// nansum() of complex numbers, which CUDA has and the CPU's kernel refuses (native/cuda/ReduceSumProdKernel.cu).
template <class Op, class Schema = typename Op::schema>
struct NanSum;

template <class Op, class Result, class... Out>
struct NanSum<Op, Result(const Tensor&, OptionalIntArrayRef, bool, std::optional<ScalarType>, Out...)> {
  static Result call(
      const Tensor& self, OptionalIntArrayRef dims, bool keepdim, std::optional<ScalarType> dtype, Out... out) {
    ScalarType type = self.scalar_type();
    ((type = out.scalar_type()), ...);
    type = dtype.value_or(type);
    if (!self.is_complex() && !c10::isComplexType(type)) {
      return Boxed<Op, &check_and_run<&fallback>>::call(self, dims, keepdim, dtype, out...);
    }
    const Tensor numbers = without_nan(self, type);
    if constexpr (sizeof...(Out) == 0) {
      return at::_ops::sum_dim_IntList::call(numbers, dims, keepdim, type);
    } else {
      return (at::_ops::sum_IntList_out::call(numbers, dims, keepdim, type, out), ...);
    }
  }
};

} // namespace at::openreg
