#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>

#include <functional>
#include <string>

#include "FallbackPolicy.h"

// How the tensors of one operator may differ in device. CUDA's rules, in PyTorch's words: a program that passes here must
// pass there, and the other way round.
namespace at::openreg {

// A tensor among an operator's arguments.
struct SeenTensor {
  TensorImpl* tensor;
  const c10::Argument* argument;
};

struct DevicePolicy;

// Throws unless `seen`, which are not all on one device, may meet in one operator.
using DeviceRule = void (*)(const DevicePolicy& policy, ArrayRef<SeenTensor> seen);

struct DevicePolicy {
  std::string name;        // "aten::add.Tensor"
  std::string method = ""; // in PyTorch's sentence: the wrapper of the kernel
  DeviceRule rule = nullptr;
  std::string argument = "";     // that the rule treats differently
  bool builtin = true;           // PyTorch's own operator, not one that somebody else defined
  bool reads_data = false;       // its results, or their shapes, depend on the data: CUDA's kernel makes the host wait
  bool only_writes = false;      // its results are arguments: it is in-place or out=
  bool keeps_statistics = false; // batch normalization: it writes running_mean and running_var in training only
  mutable FallbackUse fallback = {};
};

// Whether the operator writes that argument. The schema says so, but not of the statistics that batch normalization keeps:
// some schemas never mark them, others always. `training` is the call's argument of that name, true if there is none.
bool is_written(const DevicePolicy& policy, const c10::Argument& argument, bool training);

// Of an operator by its schema: made once, then a look-up by address.
const DevicePolicy& policy_of(const c10::FunctionSchema& schema);

// Every operator that has been asked for.
void for_each_policy(const std::function<void(const DevicePolicy&)>& fn);

} // namespace at::openreg
