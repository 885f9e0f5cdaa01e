#include <type_traits>

#include "occl/float16.h"
#include "occl_transport.h"

// Reductions on the calling thread. PyTorch's reductions would start an OpenMP team for each thread that waits for
// other ranks.
namespace occl {
namespace {

// If one operand of MIN or MAX is NaN, the result is NaN, as in NCCL and PyTorch.
template <typename T>
bool isNan(T value) {
  if constexpr (std::is_integral_v<T>) {
    return false;
  } else {
    return value != value;
  }
}

template <typename T, typename Op>
void loop(T* into, const T* a, const T* b, size_t count, const Op& op) {
#pragma GCC ivdep // no iteration depends on another, even if `into` is `a` or `b`: that case is slow without ivdep
  for (size_t i = 0; i < count; ++i) {
    into[i] = static_cast<T>(op(a[i], b[i]));
  }
}

// Calls `body` with a value of the type.
template <typename F>
auto withType(DataType type, const F& body) {
  switch (type) {
    case DataType::uint8:
      return body(uint8_t{});
    case DataType::int8:
      return body(int8_t{});
    case DataType::int32:
      return body(int32_t{});
    case DataType::int64:
      return body(int64_t{});
    case DataType::float16:
      return body(Float16(0));
    case DataType::bfloat16:
      return body(BFloat16(0));
    case DataType::float32:
      return body(float{});
    case DataType::float64:
      return body(double{});
  }
  __builtin_unreachable();
}

// A number in the type of the data. The 16-bit types take a float.
template <typename T>
T rounded(double value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(value);
  } else {
    return static_cast<T>(static_cast<float>(value));
  }
}

} // namespace

size_t sizeOf(DataType type) {
  return withType(type, [](auto zero) { return sizeof(zero); });
}

void combine(const Reduction& reduction, void* into, const void* a, const void* b, size_t count) {
  withType(reduction.type, [&](auto zero) {
    using T = decltype(zero);
    const auto run = [&](const auto& f) {
      loop(static_cast<T*>(into), static_cast<const T*>(a), static_cast<const T*>(b), count, f);
    };
    switch (reduction.op) {
      case ReduceOp::sum:
        return run([](T x, T y) { return x + y; });
      case ReduceOp::product:
        return run([](T x, T y) { return x * y; });
      case ReduceOp::min:
        return run([](T x, T y) { return isNan(x) || x < y ? x : y; });
      case ReduceOp::max:
        return run([](T x, T y) { return isNan(x) || x > y ? x : y; });
    }
  });
}

void finishReduction(const Reduction& reduction, void* data, size_t count) {
  if (reduction.divisor == 1) {
    return;
  }
  withType(reduction.type, [&](auto zero) {
    using T = decltype(zero);
    auto* const values = static_cast<T*>(data);
    const T divisor = rounded<T>(static_cast<double>(reduction.divisor));
    for (size_t i = 0; i < count; ++i) {
      values[i] = static_cast<T>(values[i] / divisor);
    }
  });
}

void multiply(DataType type, void* into, const void* from, double factor, size_t count) {
  withType(type, [&](auto zero) {
    using T = decltype(zero);
    const T multiplier = rounded<T>(factor); // NCCL passes the factor to its kernel in the type of the data
    const auto* const inputs = static_cast<const T*>(from);
    auto* const results = static_cast<T*>(into);
    for (size_t i = 0; i < count; ++i) {
      results[i] = static_cast<T>(inputs[i] * multiplier);
    }
  });
}

} // namespace occl
