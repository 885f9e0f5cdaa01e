#pragma once

#include "aten/native/DeviceRules.h"

// When the host waits for the device inside an operator, as it does with CUDA. One table has the rules, and each row
// names the place in PyTorch's CUDA sources that says so.
namespace at::openreg {

// One call of an operator, as the rules see it.
struct SyncCall {
  ArrayRef<Operand> operands;
  ArrayRef<const c10::Argument*> flags; // arguments that are no tensors, and are true, or given, or not 0

  const TensorImpl* find(std::string_view argument) const; // null: not given
  int64_t numel(std::string_view argument) const;          // 0: not given
  bool has(std::string_view flag) const;
};

// LITERALINCLUDE START: SYNC RULE
struct SyncRule {
  using SyncCondition = bool (*)(const SyncCall& call);

  // The operators, without "aten::", separated by spaces; or, after "argument ", the name of an argument: the rule is
  // for all operators of PyTorch that have this argument.
  std::string_view operators;
  const char* source;  // in aten/src/ATen, where CUDA's host waits
  SyncCondition waits; // the host reads a value that the device computes, so such a call is not queued
  SyncCondition warns =
      waits; // in such a call, CUDA also calls warn_or_error_on_sync() (torch.cuda.set_sync_debug_mode)
  SyncCondition waits_last = nullptr; // the wait is the last step; in other calls, CUDA then launches more kernels
  SyncCondition copies = nullptr;     // the host first copies an operand from the CPU, and waits for the copy

  bool waits_always() const;
};
// LITERALINCLUDE END: SYNC RULE

// The rule of the operator `schema`, whose full name is `name`. Null: the host never waits.
const SyncRule* sync_rule_of(const c10::FunctionSchema& schema, std::string_view name);

} // namespace at::openreg
