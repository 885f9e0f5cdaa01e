#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <string>

// How the tensors of one operator may differ in device. The rules are CUDA's, and the errors are PyTorch's. A program
// that passes here must pass on CUDA, and a program that CUDA refuses must be refused here.
namespace at::openreg {

// A tensor among an operator's arguments.
struct Operand {
  TensorImpl* tensor;
  const c10::Argument* argument;
};

// The rule of one operator.
struct DeviceRule {
  // Throws unless `operands`, which are not all on one device, may meet in one operator.
  using Check = void (*)(const DeviceRule& rule, ArrayRef<Operand> operands);

  Check check = nullptr;
  std::string method{};   // the wrapper of CUDA's kernel, which PyTorch's sentence names
  std::string argument{}; // the argument that the rule treats differently
};

// The row of device_rules.yaml, or what native_functions.yaml says. `name` is that of `schema`, "aten::add.Tensor".
DeviceRule device_rule_of(const c10::FunctionSchema& schema, const std::string& name);

} // namespace at::openreg
