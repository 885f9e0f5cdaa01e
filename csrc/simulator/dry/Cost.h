#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/core/ScalarType.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <optional>

// How many floating-point operations a call needs, from the shapes of its arguments.
namespace at::openreg {

// Kernels of one class reach about the same share of the device's peak.
enum class KernelClass : uint8_t { matmul, convolution, attention, attention_backward };
constexpr size_t kKernelClasses = 4;

// The precision of a product: a ScalarType, or TensorFloat-32, which is no type of tensors.
constexpr size_t kTensorFloat32 = c10::NumScalarTypes;
constexpr size_t kPrecisions = c10::NumScalarTypes + 1;

struct CallCost {
  double flops = 0; // 0: only the bytes count
  KernelClass kernel_class = KernelClass::matmul;
  size_t precision = 0;
  // The kernel touches no more bytes of its first operand than the other operands have: it looks up or changes rows.
  bool looks_up = false;
};

// The formula of an operator. It follows from the names of the operator's arguments, so that the variants of an operator
// (out=, in place, with a bias) share it. The formulas are those of torch.utils.flop_counter, but causal attention
// computes half of the products.
class CostFormula {
 public:
  explicit CostFormula(const c10::FunctionSchema& schema);

  CallCost operator()(ArrayRef<c10::IValue> arguments) const;

  bool is_matmul() const {
    return kind_ == CostKind::matmul;
  }

 private:
  enum class CostKind { bytes, look_up, matmul, convolution, convolution_backward, attention, attention_backward };

  CostKind kind_ = CostKind::bytes;
  std::array<size_t, 3> tensors_{}; // the indices of the arguments that are multiplied
  size_t geometry_ = 0;             // of a convolution: the index of `stride`, which the other numbers follow
  std::optional<size_t> is_causal_;
};

} // namespace at::openreg
