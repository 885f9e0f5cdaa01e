#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

#include "aten/native/DeviceRules.h"
#include "aten/native/SyncRules.h"

// The traits of an operator: the facts about the operator that the backend finds once and keeps.
namespace at::openreg {

// How often the operator took the fallback, and whether the fallback has warned of it (FallbackPolicy.h).
struct FallbackUse {
  std::atomic<uint64_t> calls{0};
  std::atomic<bool> warned{false};
};

struct OperatorTraits {
  std::string name; // "aten::add.Tensor"
  DeviceRule rule{};
  const SyncRule* sync = nullptr; // when the host waits in the operator; null: never
  bool builtin = true;            // in the namespace aten, so its kernel is taken to be PyTorch's
  bool only_writes = false;       // its results are arguments: it is in-place or out=
  bool keeps_arguments = false;   // its result refers to the memory of the arguments, and the schema does not say so
  bool keeps_statistics = false;  // batch normalization: it writes running_mean and running_var in training only
  mutable FallbackUse fallback{};
};

// Whether the operator writes `argument`. The schema says so, except for the running statistics of batch normalization.
// Batch normalization writes them only in training, but some schemas never mark them as written, and others always do.
// `training` is the call's argument of that name; true if the operator has no such argument.
bool is_written(const OperatorTraits& traits, const c10::Argument& argument, bool training);

// Whether the result only refers to the memory of `argument`, as the result of col_indices() does: the kernel reads no
// element.
bool is_only_referenced(const OperatorTraits& traits, const c10::Argument& argument);

// The traits of the operator with this schema. The first call makes them. Later calls find them by the address of the
// schema.
const OperatorTraits& traits_of(const c10::FunctionSchema& schema);

// Calls `fn` with the traits of every operator for which traits_of() was called.
void for_each_traits(const std::function<void(const OperatorTraits&)>& fn);

// ---- The same for an operator that is known at compile time, such as at::_ops::add_Tensor

template <class Op>
const c10::FunctionSchema& schema_of() {
  static const auto& schema = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name).schema();
  return schema;
}

template <class Op>
const OperatorTraits& traits_of() {
  static const OperatorTraits& traits = traits_of(schema_of<Op>());
  return traits;
}

// "aten::add.Tensor"
template <class Op>
const char* full_name() {
  return traits_of<Op>().name.c_str();
}

} // namespace at::openreg
