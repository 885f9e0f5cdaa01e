#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

// Operators that CUDA computes in a dtype for which the CPU has no kernel. They are computed in a wider dtype, and the
// result is rounded to the dtype of the operands, as CUDA's kernels do whose accumulate type is wider (acc_type in
// ATen/AccumulateType.h).
namespace at::openreg {

// The kernel of one operator: widens the operands that have one of the dtypes, calls the fallback, and rounds the
// results. A call without such an operand goes to the fallback as it is.
class WiderKernel final : public c10::OperatorKernel {
 public:
  // Checks the operands, before they are widened, as CUDA's kernel does.
  using Precondition = void (*)(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments);

  explicit WiderKernel(std::vector<ScalarType> dtypes, Precondition precondition = nullptr)
      : dtypes_(std::move(dtypes)), precondition_(precondition) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
  bool is_narrow(ScalarType dtype) const;
  bool is_narrow(const Tensor& tensor) const;

  std::vector<ScalarType> dtypes_;
  Precondition precondition_;
};

struct WiderOperators {
  std::vector<const char*> names;
  std::vector<ScalarType> dtypes;
  WiderKernel::Precondition precondition = nullptr;
};

std::vector<WiderOperators> wider_operators();

// The dtype of which the same is true, for an operator that has a faster route than the fallback. Undefined: none.
template <class Op>
consteval ScalarType narrow_dtype() {
  constexpr std::string_view kInComplexHalf[] = {"acos",    "angle", "asin", "atan", "cos", "cosh", "div",
                                                 "equal",   "exp",   "lerp", "log",  "pow", "prod", "rsqrt",
                                                 "sigmoid", "sin",   "sinh", "sqrt", "sum", "tan",  "tanh"};
  const std::string_view name = std::string_view(Op::name).substr(std::string_view("aten::").size());
  const bool found = std::find(std::begin(kInComplexHalf), std::end(kInComplexHalf), name) != std::end(kInComplexHalf);
  return found ? kComplexHalf : name == "abs" ? kBool : ScalarType::Undefined;
}

inline bool has_dtype(const Tensor& operand, ScalarType dtype) {
  return operand.scalar_type() == dtype;
}
inline bool has_dtype(const std::optional<ScalarType>& of_result, ScalarType dtype) {
  return of_result == dtype;
}
template <class T>
bool has_dtype(const T&, ScalarType) {
  return false;
}

// Whether a call of the operator has an operand, or asks for a result, of its narrow dtype.
template <class Op, class... Args>
bool is_narrow_call(const Args&... args) {
  constexpr ScalarType narrow = narrow_dtype<Op>();
  if constexpr (narrow == ScalarType::Undefined) {
    return false;
  } else {
    return (has_dtype(args, narrow) || ...);
  }
}

// WiderKernel for the narrow dtype of the operator, as a function.
template <class Op>
void compute_in_wider_dtype(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static WiderKernel kernel({narrow_dtype<Op>()});
  kernel(op, keys, stack);
}

} // namespace at::openreg
