#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/histc_ops.h>

#include "aten/native/NondeterminismChecks.h"
#include "simulator/borrowed/CpuKernel.h"

// histc() of integers, which CUDA has and the CPU's kernel refuses (native/cuda/SummaryOps.cu). The counts have the dtype
// of the elements.
namespace at::openreg {

// Computes on CPU tensors.
Tensor count_integers(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max);

template <class Op, class Schema = typename Op::schema>
struct Histogram;

template <class Op, class Result, class... Out>
struct Histogram<Op, Result(const Tensor&, int64_t, const Scalar&, const Scalar&, Out...)> {
  struct OfIntegers : at::_ops::histc {
    static Tensor redispatch(
        c10::DispatchKeySet, const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max) {
      return count_integers(self, bins, min, max);
    }
  };
  static Result call(const Tensor& self, int64_t bins, const Scalar& min, const Scalar& max, Out... out) {
    if (!c10::isIntegralType(self.scalar_type(), /*includeBool=*/false)) {
      return Boxed<Op, &check_and_run<&fallback>>::call(self, bins, min, max, out...);
    }
    Tensor counts = CpuKernel<OfIntegers>::call(self, bins, min, max);
    if constexpr (sizeof...(Out) == 0) {
      return counts;
    } else {
      return (out.resize_({bins}).copy_(counts), ...);
    }
  }
};

} // namespace at::openreg
