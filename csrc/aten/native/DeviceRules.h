#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <string>

// Which mixes of devices an operator accepts among its tensors. The rules are CUDA's, except those of the last row of
// device_rules.yaml, and the errors are PyTorch's. A program that passes here must pass on CUDA, and a program that
// passes on CUDA must pass here.
namespace at::openreg {

// A tensor among an operator's arguments.
struct Operand {
  TensorImpl* tensor;
  const c10::Argument* argument;

  // Whether the tensor is a mask if it is used as an index.
  bool is_mask() const {
    const ScalarType type = tensor->dtype().toScalarType();
    return type == kBool || type == kByte;
  }
};

// The rule of one operator.
struct DeviceRule {
  // Throws if the operator refuses this mix of devices. Is called only if `operands` are not all on one device.
  using Check = void (*)(const DeviceRule& rule, ArrayRef<Operand> operands);

  Check check = nullptr;
  std::string method{};   // the name of the generated wrapper, which PyTorch's error message contains
  std::string argument{}; // the argument that the rule treats differently
};

// The rule of the operator `schema`. The operator's row in device_rules.yaml gives the rule. Without a row,
// native_functions.yaml decides: the rule is `one_scalar` if that file says `device_check: NoCheck`, else `one_device`.
// `name` is the operator's full name with the overload, such as "aten::add.Tensor".
DeviceRule device_rule_of(const c10::FunctionSchema& schema, const std::string& name);

} // namespace at::openreg
