#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include <span>
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

  WiderKernel(std::vector<ScalarType> dtypes, Precondition precondition)
      : dtypes_(std::move(dtypes)), precondition_(precondition) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack);

 private:
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

} // namespace at::openreg
