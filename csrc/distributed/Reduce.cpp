#include "distributed/Reduce.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace c10d::openreg {
namespace {

// If one operand of MIN or MAX is NaN, the result is NaN, as in NCCL and ATen.
template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return value != value;
  }
}

template <typename T, typename Op>
void loop(T* into, const T* a, const T* b, int64_t numel, const Op& op) {
#pragma GCC ivdep // no iteration depends on another, even if `into` is `a` or `b`: that case is slow without ivdep
  for (int64_t i = 0; i < numel; ++i) {
    into[i] = static_cast<T>(op(a[i], b[i]));
  }
}

template <typename F>
void with_type(at::ScalarType dtype, const F& body) {
  AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "reduction", [&] { body(scalar_t{}); });
}

} // namespace

bool can_reduce(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
    case at::kChar:
    case at::kInt:
    case at::kLong:
    case at::kHalf:
    case at::kBFloat16:
    case at::kFloat:
    case at::kDouble:
      return true;
    default:
      return false;
  }
}

void combine(ReduceOp::RedOpType op, at::ScalarType dtype, void* into, const void* a, const void* b, int64_t numel) {
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](const auto& f) {
      loop(static_cast<T*>(into), static_cast<const T*>(a), static_cast<const T*>(b), numel, f);
    };
    switch (op) {
      case ReduceOp::SUM:
        return run([](T x, T y) { return x + y; });
      case ReduceOp::PRODUCT:
        return run([](T x, T y) { return x * y; });
      case ReduceOp::MIN:
        return run([](T x, T y) { return is_nan(x) || x < y ? x : y; });
      case ReduceOp::MAX:
        return run([](T x, T y) { return is_nan(x) || x > y ? x : y; });
      default:
        TORCH_INTERNAL_ASSERT(false, "unexpected reduction");
    }
  });
}

void finish_reduction(const Reduction& reduction, at::ScalarType dtype, void* data, int64_t numel) {
  if (reduction.divisor == 1) {
    return;
  }
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    auto* const values = static_cast<T*>(data);
    const T divisor = static_cast<T>(static_cast<double>(reduction.divisor));
    for (int64_t i = 0; i < numel; ++i) {
      values[i] = static_cast<T>(values[i] / divisor);
    }
  });
}

std::vector<at::Tensor> premultiplied(const Reduction& reduction, const std::vector<at::Tensor>& inputs) {
  if (reduction.factor == 1 && !reduction.factor_tensor.defined()) {
    return inputs;
  }
  const double factor = reduction.factor_tensor.defined() ? reduction.factor_tensor.item<double>() : reduction.factor;
  std::vector<at::Tensor> results;
  for (const at::Tensor& input : inputs) {
    results.push_back(at::empty_like(input));
    with_type(input.scalar_type(), [&](auto zero) {
      using T = decltype(zero);
      const T rounded = static_cast<T>(factor); // NCCL passes the factor to its kernel in the type of the data
      const auto* const from = static_cast<const T*>(input.data_ptr());
      auto* const into = static_cast<T*>(results.back().data_ptr());
      for (int64_t i = 0; i < input.numel(); ++i) {
        into[i] = static_cast<T>(from[i] * rounded);
      }
    });
  }
  return results;
}

} // namespace c10d::openreg
